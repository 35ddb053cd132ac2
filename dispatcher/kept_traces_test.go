package dispatcher_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// keeping is a dispatcher whose sampler samples as it is told, with the spans that it exports all the same. Its hook, which is fail-closed, takes
// a time and has a result.
func keeping(t *testing.T, sampler trace.Sampler, took time.Duration, result review.Result) (*dispatcher.Dispatcher, *tracetest.SpanRecorder) {
	t.Helper()
	spans, s := tracetest.NewSpanRecorder(), static{snapshot: compile(t, []hook{{name: "x.test.dev"}}, nil)}
	d, err := dispatcher.New(dispatcher.Options{
		Snapshots: s, Clusters: s,
		Options: observe.Options{
			Slow: observe.DefaultSlow, TracerProvider: trace.NewTracerProvider(trace.WithSampler(sampler)),
			KeptTraces: trace.NewTracerProvider(trace.WithSampler(trace.AlwaysSample()), trace.WithSpanProcessor(spans)),
		},
		Streams: start(func(_ context.Context, _ *review.CallSet, done func(int, review.Result)) func(int) {
			time.AfterFunc(took, func() { done(0, result) })
			return func(int) {}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return d, spans
}

func TestSlowAndFailedReviewsAreKeptThoughTheirTraceIsNotSampled(t *testing.T) {
	allow := review.Result{
		Verdict: &admissionv1.AdmissionResponse{Allowed: true},
		Timing:  review.Timing{Queued: time.Millisecond, Wire: 2 * time.Millisecond, Host: 500 * time.Millisecond, Instance: "vm-1"},
	}
	deny := review.Result{Verdict: &admissionv1.AdmissionResponse{Status: &admissionv1.Status{Message: "no"}}}
	never, always := trace.NeverSample(), trace.AlwaysSample()
	for name, test := range map[string]struct {
		sampler trace.Sampler
		took    time.Duration
		result  review.Result
		want    []string
		kept    string
		status  codes.Code
	}{
		"a slow one": {never, 600 * time.Millisecond, allow, []string{
			"call x.test.dev 0s, sent 1ms, received 503ms, end 600ms", "review validate 0s, held 0s, end 600ms",
		}, "slow", codes.Unset},
		"a failed one": {never, time.Millisecond, review.Fail(review.FailureLost, "lost"), []string{
			"call x.test.dev 0s, end 1ms", "review validate 0s, held 0s, end 1ms",
		}, "failed", codes.Error},
		"but none that is fast":                      {never, observe.DefaultSlow - 1, allow, nil, "", codes.Unset},
		"but none that is denied":                    {never, time.Millisecond, deny, nil, "", codes.Unset},
		"but none whose trace is sampled, and there": {always, 600 * time.Millisecond, allow, nil, "", codes.Unset},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, spans := keeping(t, test.sampler, test.took, test.result)
				caller := oteltrace.NewSpanContext(oteltrace.SpanContextConfig{TraceID: oteltrace.TraceID{1}, SpanID: oteltrace.SpanID{2}})
				begun := time.Now()
				if _, err := d.Review(oteltrace.ContextWithRemoteSpanContext(t.Context(), caller), podReview(validate, `{}`)); err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, s := range spans.Ended() {
					got = append(got, line(s, begun))
					if s.SpanContext().TraceID() != caller.TraceID() {
						t.Errorf("%s is of trace %s, want that of the caller", s.Name(), s.SpanContext().TraceID())
					}
				}
				slices.Sort(got)
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Fatalf("spans (-want +got):\n%s", diff)
				}
				if len(got) == 0 {
					return
				}
				root := spans.Ended()[len(got)-1]
				if kept := attributes(root, "portcullis.kept")["portcullis.kept"]; kept != test.kept || root.Status().Code != test.status {
					t.Errorf("the review is kept as %q with status %v", kept, root.Status())
				}
				if spans.Ended()[0].Parent().SpanID() != root.SpanContext().SpanID() {
					t.Error("the call is no child of the review")
				}
			})
		})
	}
}

// noConfiguration has none that is fresh.
type noConfiguration struct{ static }

func (noConfiguration) Acquire(context.Context, string, int64) (*match.Snapshot, string, error) {
	return nil, "", errors.New("stale")
}

func TestAReviewWithoutAConfigurationIsKept(t *testing.T) {
	spans, s := tracetest.NewSpanRecorder(), noConfiguration{}
	d, err := dispatcher.New(dispatcher.Options{
		Snapshots: s, Clusters: s, Streams: atOnce{},
		Options: observe.Options{
			KeptTraces: trace.NewTracerProvider(trace.WithSampler(trace.AlwaysSample()), trace.WithSpanProcessor(spans)),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Review(t.Context(), podReview(validate, `{}`)); err == nil {
		t.Fatal("it is judged")
	}
	ended := spans.Ended()
	if len(ended) != 1 || attributes(ended[0], "portcullis.outcome")["portcullis.outcome"] != "refused" || ended[0].Status().Code != codes.Error {
		t.Errorf("spans %v", ended)
	}
}

func TestAClusterHasItsPartOfTheReviewsThatAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, spans := keeping(t, trace.NeverSample(), 0, review.Fail(review.FailureLost, "lost"))
		kept := func(cluster string, reviews int) (n int) {
			before := len(spans.Ended())
			for range reviews {
				r := podReview(validate, `{}`)
				r.Admission.Cluster = cluster
				if _, err := d.Review(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			return (len(spans.Ended()) - before) / 2 // a review and a call
		}
		if n := kept("noisy", 3*observe.MaxKeptTraces); n != observe.MaxKeptTraces {
			t.Errorf("%d reviews are kept in one second, want %d", n, observe.MaxKeptTraces)
		}
		if n := kept("other", 1); n != 1 {
			t.Error("a cluster has taken the part of another one")
		}
		time.Sleep(time.Second) //nolint:forbidigo // of the bubble
		if n := kept("noisy", 1); n != 1 {
			t.Error("none is kept in the next second")
		}
	})
}
