package dispatcher_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/shadow"
)

// recording returns a dispatcher with a recorder, whose backend answers hooks in shadow when the test says so.
func recording(t *testing.T, s *match.Snapshot) (*dispatcher.Dispatcher, *shadow.Recorder, *deaf) {
	t.Helper()
	k, backend, recorder := static{snapshot: s}, &deaf{}, shadow.NewRecorder(0)
	d, err := dispatcher.New(dispatcher.Options{Snapshots: k, Clusters: k, Streams: backend, Options: observe.Options{Shadows: recorder}})
	if err != nil {
		t.Fatal(err)
	}
	return d, recorder, backend
}

func denial(message string) review.Result {
	return review.Result{
		Verdict: &admissionv1.AdmissionResponse{Status: &admissionv1.Status{Message: message}},
		Timing:  review.Timing{Instance: "vm-1", Host: time.Second},
	}
}

// of is a review of a resource by jane.
func of(resource, name, object string) *review.Request {
	r := podReview(validate, object)
	r.Explain = false
	r.Admission.Resource = &admissionv1.GroupVersionResource{Version: "v1", Resource: resource}
	r.Admission.Namespace, r.Admission.Name, r.Admission.UserInfo = "shop", name, &admissionv1.UserInfo{Username: "jane"}
	return r
}

// TestRecordsOfHooksInShadowNameObjectsAndUsers has a hook deny, fail and allow.
func TestRecordsOfHooksInShadowNameObjectsAndUsers(t *testing.T) {
	for name, tc := range map[string]struct {
		request *review.Request
		result  review.Result
		want    *shadow.Case
	}{
		"a denial": {
			of("pods", "web", `{"kind":"Pod"}`), denial("not on Fridays"),
			&shadow.Case{Outcome: shadow.Denied, Message: "not on Fridays", Latest: shadow.Reference{Resource: "pods", Name: "web", Instance: "vm-1"}},
		},
		"a denial of an object whose name the API server completes": {
			of("pods", "", `{"kind":"Pod","metadata":{"labels":{"generateName":"x"},"generateName":"web-"}}`), denial("no"),
			&shadow.Case{Outcome: shadow.Denied, Message: "no", Latest: shadow.Reference{Resource: "pods", Name: "web-*", Instance: "vm-1"}},
		},
		"a denial of an object without any name": {
			of("pods", "", `{"kind":"Pod","metadata":{}}`), denial("no"),
			&shadow.Case{Outcome: shadow.Denied, Message: "no", Latest: shadow.Reference{Resource: "pods", Instance: "vm-1"}},
		},
		"a denial of a Secret": {
			of("secrets", "hunter2", `{"kind":"Secret","metadata":{"generateName":"hunter"}}`), denial("no"),
			&shadow.Case{Outcome: shadow.Denied, Message: "no", Latest: shadow.Reference{Resource: "secrets", Instance: "vm-1"}},
		},
		"a failure": {
			of("pods", "web", `{"kind":"Pod"}`), review.Fail(review.FailureLost, "gone"),
			&shadow.Case{Outcome: shadow.Failed, Message: "gone", Latest: shadow.Reference{Resource: "pods", Name: "web"}},
		},
		"a verdict that allows": {of("pods", "web", `{"kind":"Pod"}`), yes(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, recorder, backend := recording(t, compile(t, []hook{{name: "s.test.dev", shadow: true}}, nil))
				if _, err := d.Review(t.Context(), tc.request); err != nil {
					t.Fatal(err)
				}
				call := backend.inShadow()[0]
				<-time.After(2 * time.Second)
				call.done(0, tc.result)
				d.Close(t.Context())

				all := recorder.Hooks(shadow.Query{Hook: "s.test.dev"})
				if len(all) != 1 || len(all[0].Subjects) != 1 || all[0].Cluster != "c" {
					t.Fatalf("records %+v", all)
				}
				if p := all[0].Took.Quantile(1); p < 2*time.Second || p > 2500*time.Millisecond {
					t.Errorf("the call took %s", p)
				}
				if s := all[0].Subjects[0]; s.Namespace != "shop" || s.User != "jane" {
					t.Errorf("subject %+v", s)
				}
				var want []shadow.Case
				if tc.want != nil {
					tc.want.Calls, tc.want.Subject, tc.want.Latest.UID, tc.want.Latest.Operation = 1, shadow.Subject{Namespace: "shop", User: "jane"}, "u", "CREATE"
					want = append(want, *tc.want)
				}
				if diff := cmp.Diff(want, all[0].Cases, cmpopts.IgnoreTypes(shadow.Seen{})); diff != "" {
					t.Errorf("cases (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestACallInShadowThatIsNotMadeIsRecorded has the dispatcher stop before the call.
func TestACallInShadowThatIsNotMadeIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, recorder, _ := recording(t, compile(t, []hook{{name: "s.test.dev", shadow: true}}, nil))
		d.Close(t.Context())
		unexplained(t, d, validate)
		all := recorder.Hooks(shadow.Query{})
		if len(all) != 1 || all[0].Counts != (shadow.Counts{Dropped: 1}) || all[0].Took.Count() != 0 || len(all[0].Cases) != 0 {
			t.Errorf("records %+v", all)
		}
	})
}

// TestAnExplainedReviewWaitsForItsHooksInShadow has a hook that denies, a hook that never answers, and a hook that no call can reach.
func TestAnExplainedReviewWaitsForItsHooksInShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, backend := recording(t, compile(t, []hook{
			{name: "s.test.dev", shadow: true, time: 30 * time.Second}, {name: "v.test.dev"}, {name: "w.test.dev", shadow: true, time: 30 * time.Second},
		}, nil))
		r := podReview(validate, `{"kind":"Pod"}`)
		r.AwaitShadows = true
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		answers := make(chan review.Answer, 1)
		go func() {
			a, err := d.Review(ctx, r)
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
		waiting := backend.inShadow()
		select {
		case <-answers:
			t.Error("the review did not wait")
		default:
		}
		begun := time.Now()
		waiting[0].done(0, denial("not on Fridays"))
		a := <-answers
		if took := time.Since(begun); took >= 5*time.Second || !a.Response.GetAllowed() {
			t.Errorf("answered %v after %s", a.Response, took)
		}
		got := map[string]string{}
		for _, o := range a.Outcomes {
			got[o.GetHook()] = strings.Join([]string{o.GetOutcome(), o.GetShadow(), o.GetReason(), o.GetInstance()}, "|")
		}
		want := map[string]string{
			"s.test.dev": "shadow|denied|not on Fridays|vm-1", "v.test.dev": "allowed|||", "w.test.dev": "shadow|unanswered||",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
		waiting[1].done(0, yes())
		d.Close(t.Context())
	})
}

// TestAReviewThatWaitsIsToldOfCallsThatAreNotMade has none made: the dispatcher has stopped such calls.
func TestAReviewThatWaitsIsToldOfCallsThatAreNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, _ := recording(t, compile(t, []hook{{name: "s.test.dev", shadow: true}}, []hook{{name: "z.test.dev", shadow: true}}))
		d.Close(t.Context())
		r := podReview(admit, `{"kind":"Pod"}`)
		r.AwaitShadows = true
		a, err := d.Review(t.Context(), r)
		if err != nil || len(a.Outcomes) != 2 {
			t.Fatalf("got %v, %v", a.Outcomes, err)
		}
		for _, o := range a.Outcomes {
			if o.GetShadow() != "dropped" || o.GetReason() == "" {
				t.Errorf("outcome %v", o)
			}
		}
	})
}
