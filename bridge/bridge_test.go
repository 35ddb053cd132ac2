package bridge

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// An API server of long ago gives its reviews no uid, and wants none back; the hooks are given one.
func TestAReviewWithoutUidsIsGivenOne(t *testing.T) {
	seen := map[string]bool{}
	e := serve(t, testOptions(func(ctx context.Context, r *review.Request) (review.Answer, error) {
		seen[r.Admission.GetUid()] = true
		return allow(ctx, r)
	}))
	client := e.client(t)
	for range 2 {
		if got := ask(t, client, e.url(validatePath), alphaReview); got.status != http.StatusOK || !got.allowed || got.uid != "" {
			t.Errorf("answer = %+v, want it allowed", got)
		}
	}
	if len(seen) != 2 || seen[""] {
		t.Errorf("uids = %v, want one for each", seen)
	}
	large := strings.Replace(alphaReview, `"alice"`, `"`+strings.Repeat("x", testLimit)+`"`, 1)
	if got := ask(t, client, e.url(validatePath), large); got.status != http.StatusOK || got.allowed || got.code != http.StatusRequestEntityTooLarge {
		t.Errorf("answer = %+v, want a denial with 413", got)
	}
}

func TestReviewsAreHandedToTheReviewer(t *testing.T) {
	tests := map[string]struct {
		path  string
		stage admissionv1.Stage
		entry string
	}{
		"Validating hooks of the whole stage.":         {"/v1/clusters/prod-1/validate", admissionv1.Stage_STAGE_VALIDATE, ""},
		"Validating hooks of one entry.":               {"/v1/clusters/prod-1/validate/fail-closed", admissionv1.Stage_STAGE_VALIDATE, "fail-closed"},
		"Validating hooks of an entry with a plan.":    {"/v1/clusters/prod-1/validate/fail-open/10.AbC-_xyz", admissionv1.Stage_STAGE_VALIDATE, "fail-open/10.AbC-_xyz"},
		"An entry with a plan that is none.":           {"/v1/clusters/prod-1/validate/fail-open/none", admissionv1.Stage_STAGE_VALIDATE, "fail-open/none"},
		"An entry with an empty plan.":                 {"/v1/clusters/prod-1/validate/fail-open/", admissionv1.Stage_STAGE_VALIDATE, "fail-open/"},
		"Mutating hooks of the whole stage.":           {"/v1/clusters/prod-1/mutate", admissionv1.Stage_STAGE_MUTATE, ""},
		"Mutating hooks of one entry.":                 {"/v1/clusters/prod-1/mutate/workloads", admissionv1.Stage_STAGE_MUTATE, "workloads"},
		"Mutating hooks that may be called again.":     {"/v1/clusters/prod-1/reinvoke", admissionv1.Stage_STAGE_REINVOKE, ""},
		"Mutating hooks of one entry, called again.":   {"/v1/clusters/prod-1/reinvoke/workloads", admissionv1.Stage_STAGE_REINVOKE, "workloads"},
		"All stages for direct callers.":               {"/v1/clusters/prod-1/admit", admissionv1.Stage_STAGE_ADMIT, ""},
		"All stages of one entry.":                     {"/v1/clusters/prod-1/admit/all", admissionv1.Stage_STAGE_ADMIT, "all"},
		"A path spelled with escapes is the same one.": {"/v1/clusters/prod%2D1/validate/a%20b", admissionv1.Stage_STAGE_VALIDATE, "a b"},
	}
	var got *review.Request
	e := serve(t, testOptions(func(ctx context.Context, r *review.Request) (review.Answer, error) {
		got = r
		return allow(ctx, r)
	}))
	client := e.client(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			answer := ask(t, client, e.url(test.path), reviewOf("u1", 0))
			if answer.status != http.StatusOK || !answer.allowed || answer.uid != "u1" {
				t.Fatalf("answer = %+v, want u1 allowed", answer)
			}
			if answer.header.Get(revisionHeader) != "r1" {
				t.Errorf("revision = %q, want the answer's", answer.header.Get(revisionHeader))
			}
			want := &review.Request{Stage: test.stage, Entry: match.ParseEntry(test.entry), Admission: &admissionv1.AdmissionRequest{
				Uid: "u1", Cluster: "prod-1", Operation: "CREATE", Namespace: "default",
				Kind:     &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
				Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"},
				UserInfo: &admissionv1.UserInfo{Username: "alice"},
				Object:   &admissionv1.Object{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":""}}`)},
			}}
			if booked := got.Reservation.Bytes(); booked != reviewBytes(test.stage, int64(len(reviewOf("u1", 0)))) {
				t.Errorf("%d bytes are booked for it", booked)
			}
			got.Reservation, got.Received, got.Deadline = nil, time.Time{}, time.Time{} // of which other tests are
			if diff := cmp.Diff(want, got, protocmp.Transform(), cmp.AllowUnexported(match.Entry{})); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVerdictsComeBack(t *testing.T) {
	tests := map[string]struct {
		response *admissionv1.AdmissionResponse
		want     answered
	}{
		"An allow is an allow.": {
			&admissionv1.AdmissionResponse{Allowed: true}, answered{status: 200, uid: "u1", allowed: true},
		},
		"A denial keeps its code and message.": {
			&admissionv1.AdmissionResponse{Status: &admissionv1.Status{Code: 409, Message: `hook "a.b.c" denied the request: no`}},
			answered{status: 200, uid: "u1", code: 409, message: `hook "a.b.c" denied the request: no`},
		},
		"A denial without a reason is a denial.": {
			&admissionv1.AdmissionResponse{}, answered{status: 200, uid: "u1"},
		},
	}
	var response *admissionv1.AdmissionResponse
	e := serve(t, testOptions(func(_ context.Context, r *review.Request) (review.Answer, error) {
		response.Uid = r.Admission.GetUid()
		return review.Answer{Response: response}, nil
	}))
	for protocol, client := range map[string]*http.Client{"HTTP/1.1": e.client(t), "HTTP/2": e.client2(t)} {
		for name, test := range tests {
			t.Run(protocol+": "+name, func(t *testing.T) {
				response = test.response
				got := ask(t, client, e.url(validatePath), reviewOf("u1", 0))
				got.header = nil
				if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(answered{})); diff != "" {
					t.Errorf("answer (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// Short answers are left to net/http to measure, and no answer is sent in chunks.
func TestAnswersAnnounceTheirLength(t *testing.T) {
	var message string
	e := serve(t, testOptions(func(_ context.Context, r *review.Request) (review.Answer, error) {
		return review.Answer{Response: &admissionv1.AdmissionResponse{
			Uid: r.Admission.GetUid(), Status: &admissionv1.Status{Code: 403, Message: message},
		}}, nil
	}))
	for name, client := range map[string]*http.Client{"HTTP/1.1": e.client(t), "HTTP/2": e.client2(t)} {
		empty := 0 // the length of the answer without a message
		for _, size := range []int{0, shortAnswer, shortAnswer + 1, 2 << 10, 64 << 10} {
			message = strings.Repeat("x", max(0, size-empty))
			response, err := client.Post(e.url(validatePath), "application/json", strings.NewReader(reviewOf("u1", 0)))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if size == 0 {
				empty = len(body) + len(`"message":"",`)
			} else if len(body) != size {
				t.Errorf("%s: %d bytes came, want %d", name, len(body), size)
			}
			if err != nil || response.ContentLength != int64(len(body)) {
				t.Errorf("%s: length %d of %d bytes, error %v", name, response.ContentLength, len(body), err)
			}
		}
	}
}

func TestTheProtocolIsTheCallersChoice(t *testing.T) {
	e := serve(t, testOptions(allow))
	for want, client := range map[string]*http.Client{"HTTP/1.1": e.client(t), "HTTP/2.0": e.client2(t)} {
		response, err := client.Post(e.url(validatePath), "application/json", strings.NewReader(reviewOf("u1", 0)))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.Proto != want {
			t.Errorf("protocol = %s, want %s", response.Proto, want)
		}
	}
}

// Failures behind the edge once the uid is known.
func TestFailuresOfTheReviewer(t *testing.T) {
	tests := map[string]struct {
		reviewer reviewerFunc
		want     answered
	}{
		"A panic is a denial with code 500.": {
			func(context.Context, *review.Request) (review.Answer, error) { panic("boom") },
			answered{status: 200, uid: "u1", code: 500},
		},
		"No answer at all is a denial with code 500.": {
			func(context.Context, *review.Request) (review.Answer, error) { return review.Answer{}, nil },
			answered{status: 200, uid: "u1", code: 500},
		},
		"An answer to another review is a denial with code 500, though it allows.": {
			func(context.Context, *review.Request) (review.Answer, error) {
				return review.Answer{Response: &admissionv1.AdmissionResponse{Uid: "u2", Allowed: true}}, nil
			},
			answered{status: 200, uid: "u1", code: 500},
		},
		"Nothing may judge: the entry's own policy decides.": {
			func(context.Context, *review.Request) (review.Answer, error) {
				return review.Answer{}, errors.New("secret of the configuration store")
			},
			answered{status: 503, code: 503},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := serve(t, testOptions(test.reviewer))
			client := e.client(t)
			for range 2 { // the connection goes on
				got := ask(t, client, e.url(validatePath), reviewOf("u1", 0))
				if got.status != test.want.status || got.uid != test.want.uid || got.code != test.want.code || got.allowed {
					t.Errorf("answer = %+v, want %+v", got, test.want)
				}
				if strings.Contains(got.message, "secret") || strings.Contains(got.message, "boom") {
					t.Errorf("message = %q: internal texts stay inside", got.message)
				}
				if retry := got.header.Get("Retry-After"); (got.status == http.StatusServiceUnavailable) != (retry == "1") {
					t.Errorf("status %d with Retry-After %q", got.status, retry)
				}
			}
		})
	}
}

func TestAPanicBeforeTheUIDIsKnownIs500(t *testing.T) {
	options := testOptions(allow)
	options.Authorize = func(identity.Peer, string) error { panic("boom") }
	e := serve(t, options)
	if got := ask(t, e.client(t), e.url(validatePath), reviewOf("u1", 0)); got.status != http.StatusInternalServerError {
		t.Errorf("answer = %+v, want 500", got)
	}
}

// A review in v1alpha1 has no place for a patch.
func TestAnAnswerThatCannotBeWrittenIsADenial(t *testing.T) {
	e := serve(t, testOptions(func(_ context.Context, r *review.Request) (review.Answer, error) {
		return review.Answer{Response: &admissionv1.AdmissionResponse{
			Uid: r.Admission.GetUid(), Allowed: true, Patch: []byte("[]"), PatchType: "JSONPatch",
		}}, nil
	}))
	if got := ask(t, e.client(t), e.url(validatePath), alphaReview); got.status != http.StatusOK || got.allowed || got.code != http.StatusInternalServerError {
		t.Errorf("answer = %+v, want a denial with 500", got)
	}
	broken := e.instruments.requests.WithLabelValues("prod-1", edgeJSON, "validate", string(review.OutcomeFailed), "200")
	eventually(t, "it is counted as broken", func() bool { return testutil.ToFloat64(broken) == 1 })
}

func TestAPanicBehindTheAnswerCutsItOff(t *testing.T) {
	b := newBridge(t, testOptions(allow))
	w := httptest.NewRecorder()
	x := newExchange(b, w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, validatePath, nil), &endpoint{})
	func() {
		defer x.end()
		x.answer(http.StatusOK, []byte("{}"))
		panic("boom")
	}()
	if w.Body.String() != "{}" || x.outcome != review.OutcomeFailed {
		t.Errorf("body %q, outcome %s, want nothing added and the answer counted as broken", w.Body, x.outcome)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	tests := map[string]func(o *Options){
		"A Reviewer is required.": func(o *Options) { o.Reviewer = nil },
		"Authorize is required.":  func(o *Options) { o.Authorize = nil },
		"A review has to fit the share of its cluster.": func(o *Options) {
			o.Memory = ledger(2*reviewBytes(admissionv1.Stage_STAGE_MUTATE, o.MaxBodyBytes) - 1)
		},
		"So has the largest that there is by default.": func(o *Options) { o.MaxBodyBytes = DefaultMemoryBudget },
		"A limit is not negative.":                     func(o *Options) { o.MaxBodyBytes = -1 },
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			options := testOptions(allow)
			spoil(&options)
			if _, err := New(options); err == nil {
				t.Error("New() took it, want an error")
			}
		})
	}
}

func TestTheBodyLimitHoldsTwoObjectsAndAnEnvelope(t *testing.T) {
	if want := 8 << 20; DefaultMaxBodyBytes != want {
		t.Errorf("DefaultMaxBodyBytes = %d, want %d", DefaultMaxBodyBytes, want)
	}
}

// TestACallerIsToldToTryAgainWhileItHasTheTime: an API server waits as Retry-After says, and loses the reason when its time ends
// meanwhile.
func TestACallerIsToldToTryAgainWhileItHasTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := serveInBubble(t, newBridge(t, testOptions(func(ctx context.Context, r *review.Request) (review.Answer, error) {
			if r.Admission.GetUid() == "late" {
				<-time.After(time.Until(r.Deadline) - time.Second)
			}
			return review.Answer{}, errors.New("nothing may judge")
		})), ServerOptions{})
		client := e.client(t)
		for uid, want := range map[string]string{"soon": "1", "late": ""} {
			got := ask(t, client, e.url(validatePath+"?timeout=5s"), reviewOf(uid, 0))
			if retry := got.header.Get("Retry-After"); got.status != http.StatusServiceUnavailable || retry != want {
				t.Errorf("%s: status %d with Retry-After %q, want %q", uid, got.status, retry, want)
			}
		}
		client.CloseIdleConnections()
		if err := e.stop(); err != nil {
			t.Error(err)
		}
	})
}
