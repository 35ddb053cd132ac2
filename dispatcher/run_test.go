package dispatcher_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// start is a backend.
type start func(ctx context.Context, b *review.CallSet, done func(int, review.Result)) func(int)

func (s start) Start(ctx context.Context, b *review.CallSet, done func(int, review.Result)) func(int) {
	return s(ctx, b, done)
}

// over makes a dispatcher whose hooks are served by a backend.
func over(t *testing.T, snapshot *match.Snapshot, backend review.Backend) (*dispatcher.Dispatcher, *prometheus.Registry) {
	t.Helper()
	metrics := prometheus.NewRegistry()
	d, err := dispatcher.New(dispatcher.Options{
		Snapshots: static{snapshot: snapshot}, Clusters: static{snapshot: snapshot}, Streams: backend, Options: observe.Options{Metrics: metrics},
	})
	if err != nil {
		t.Fatal(err)
	}
	return d, metrics
}

// TestAVerdictThatIsThereCountsHoweverLateItIsRead has a process that stood still until even the caller had given up.
func TestAVerdictThatIsThereCountsHoweverLateItIsRead(t *testing.T) {
	for _, stage := range []admissionv1.Stage{validate, mutate} {
		for range 20 { // a select chooses at random
			synctest.Test(t, func(t *testing.T) {
				validating, mutating := []hook{{name: "v.test.dev", ignore: true}}, []hook{{name: "m.test.dev", ignore: true}}
				d, _ := over(t, compile(t, validating, mutating), start(
					func(ctx context.Context, _ *review.CallSet, done func(int, review.Result)) func(int) {
						done(0, review.Result{Verdict: &admissionv1.AdmissionResponse{}})
						<-ctx.Done()
						return func(int) {}
					}))
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				a, err := d.Review(ctx, podReview(stage, `{}`))
				if err != nil || a.Response.GetAllowed() || !strings.Contains(a.Response.GetStatus().GetMessage(), "denied") {
					t.Errorf("got %v, %v; want the denial", a.Response, err)
				}
			})
		}
	}
}

func TestAReviewThatNobodyWaitsForIsNotJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancelled := make(chan int, 1)
		d, _ := over(t, compile(t, []hook{{name: "a.test.dev"}}, nil), start(
			func(_ context.Context, _ *review.CallSet, done func(int, review.Result)) func(int) {
				return func(i int) {
					done(i, review.Fail(review.FailureCancelled, "cancelled"))
					cancelled <- i
				}
			}))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if a, err := d.Review(ctx, podReview(validate, `{}`)); err == nil {
			t.Errorf("got %v", a.Response)
		}
		<-cancelled
	})
}

func TestEveryCallThatFailsOpenIsCounted(t *testing.T) {
	validating, mutating := []hook{{name: "v.test.dev", ignore: true}}, []hook{{name: "m.test.dev", ignore: true}}
	snapshot := compile(t, validating, mutating)
	verdict := func(v *admissionv1.AdmissionResponse) review.Result { return review.Result{Verdict: v} }
	for _, test := range []struct {
		name   string
		stage  admissionv1.Stage
		late   bool
		result review.Result
		want   float64
	}{
		{"a failure", validate, false, review.Fail(review.FailureLost, "lost"), 1},
		{"a verdict that breaks the contract", validate, false,
			verdict(&admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(`[]`)}), 1},
		{"a patch that cannot be decoded", mutate, false,
			verdict(&admissionv1.AdmissionResponse{Allowed: true, PatchType: "JSONPatch", Patch: []byte(`{`)}), 1},
		{"no time left to call it", mutate, true, review.Result{}, 1},
		{"an allow", validate, false, verdict(&admissionv1.AdmissionResponse{Allowed: true}), 0},
		{"a denial", validate, false, verdict(&admissionv1.AdmissionResponse{}), 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, metrics := over(t, snapshot, start(
				func(_ context.Context, _ *review.CallSet, done func(int, review.Result)) func(int) {
					done(0, test.result)
					return func(int) {}
				}))
			deadline := time.Now().Add(time.Minute)
			if test.late {
				deadline = time.Now()
			}
			ctx, cancel := context.WithDeadline(t.Context(), deadline)
			defer cancel()
			if _, err := d.Review(ctx, podReview(test.stage, `{}`)); err != nil {
				t.Fatal(err)
			}
			if n := sum(t, metrics, "portcullis_hook_fail_open_total"); n != test.want {
				t.Errorf("%v are counted, want %v", n, test.want)
			}
		})
	}
}

// sum is the sum of a counter over its labels.
func sum(t *testing.T, metrics *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	total := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				total += m.GetCounter().GetValue()
			}
		}
	}
	return total
}

// silent is a cluster that does not answer.
type silent struct{ static }

func (s silent) Cluster(string) match.Cluster { return s }

func (silent) NamespaceLabels(ctx context.Context, _ string) (map[string]string, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// TestAClusterThatDoesNotAnswerDoesNotDelayTheAnswer has the cluster asked by the first hook: its review is refused, and
// the caller still waits when it hears of it.
func TestAClusterThatDoesNotAnswerDoesNotDelayTheAnswer(t *testing.T) {
	for _, stage := range []admissionv1.Stage{validate, mutate} {
		synctest.Test(t, func(t *testing.T) {
			k := silent{static{snapshot: compile(t, []hook{{name: "v.test.dev", ignore: true, selects: true}},
				[]hook{{name: "m.test.dev", ignore: true, selects: true}})}}
			d, err := dispatcher.New(dispatcher.Options{Snapshots: k, Clusters: k, Streams: start(nil)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			r := podReview(stage, `{}`)
			r.Admission.Namespace = "somewhere"
			a, err := d.Review(ctx, r)
			if err != nil || a.Response.GetStatus().GetCode() != 500 || ctx.Err() != nil {
				t.Errorf("%s: got %v, %v; the caller: %v", stage, a.Response, err, ctx.Err())
			}
		})
	}
}

// slow is a cluster that takes its time.
type slow struct {
	static

	takes time.Duration
}

func (s slow) Cluster(string) match.Cluster { return s }

func (s slow) NamespaceLabels(context.Context, string) (map[string]string, error) {
	<-time.After(s.takes)
	return map[string]string{"select": "yes"}, nil
}

// TestTheTimeOfAHookBeginsWithItsCall has the cluster take longer than the timeout of the hook. The hook still has all of its time, as in Kubernetes,
// or the time left of the review.
func TestTheTimeOfAHookBeginsWithItsCall(t *testing.T) {
	for _, stage := range []admissionv1.Stage{validate, mutate} {
		for takes, want := range map[time.Duration]time.Duration{3 * time.Second: 2 * time.Second, 9 * time.Second: 990 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				snapshot := compile(t, []hook{{name: "v.test.dev", selects: true, time: 2 * time.Second}},
					[]hook{{name: "m.test.dev", selects: true, time: 2 * time.Second}})
				k := slow{static{snapshot: snapshot}, takes}
				var has time.Duration
				d, err := dispatcher.New(dispatcher.Options{Snapshots: k, Clusters: k, Streams: start(
					func(_ context.Context, b *review.CallSet, done func(int, review.Result)) func(int) {
						has = time.Until(b.Calls[0].Deadline)
						done(0, review.Result{Verdict: &admissionv1.AdmissionResponse{Allowed: true}})
						return func(int) {}
					})})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				r := podReview(stage, `{}`)
				r.Admission.Namespace, r.Explain = "somewhere", false // which would ask the cluster before
				if a, err := d.Review(ctx, r); err != nil || !a.Response.GetAllowed() || has > want || has < want-time.Millisecond {
					t.Errorf("%s: the hook has %v, want %v; answer %v, error %v", stage, has, want, a.Response, err)
				}
			})
		}
	}
}
