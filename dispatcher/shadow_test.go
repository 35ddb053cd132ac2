package dispatcher_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/protobuf/testing/protocmp"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/inprocess"
)

// asked is a call set that a backend was handed.
type asked struct {
	*review.CallSet

	done      func(int, review.Result)
	cancelled []bool
}

// deaf is a backend that records its calls, and allows for hooks that decide. Calls of hooks in shadow wait for the test.
type deaf struct {
	mu   sync.Mutex
	all  []*asked
	beat func() // before a call set with calls in shadow is taken
}

func (d *deaf) Start(_ context.Context, b *review.CallSet, done func(int, review.Result)) func(int) {
	a := &asked{CallSet: b, done: done, cancelled: make([]bool, len(b.Calls))}
	d.mu.Lock()
	d.all = append(d.all, a)
	d.mu.Unlock()
	for i, c := range b.Calls {
		if c.Mode == review.Shadow && d.beat != nil {
			d.beat()
		}
		if c.Mode != review.Shadow {
			done(i, yes())
		}
	}
	return func(i int) {
		a.cancelled[i] = true
		done(i, review.Fail(review.FailureCancelled, "cancelled"))
	}
}

// inShadow are the batches with calls in shadow, in the order of their hooks. The test runs in a bubble.
func (d *deaf) inShadow() []*asked {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*asked
	for _, a := range d.all {
		if a.Calls[0].Mode == review.Shadow {
			out = append(out, a)
		}
	}
	slices.SortStableFunc(out, func(a, b *asked) int { return strings.Compare(a.Calls[0].Hook.ID.Name, b.Calls[0].Hook.ID.Name) })
	return out
}

func yes() review.Result {
	return review.Result{Verdict: &admissionv1.AdmissionResponse{Allowed: true}}
}

// oneEach is a configuration with a hook in shadow before a hook that decides.
func oneEach(t *testing.T) *match.Snapshot {
	t.Helper()
	return compile(t, []hook{{name: "s.test.dev", shadow: true}, {name: "v.test.dev"}},
		[]hook{{name: "z.test.dev", shadow: true}, {name: "m.test.dev"}})
}

// allowed judges a review that has to be allowed.
func allowed(t *testing.T, d *dispatcher.Dispatcher, stage admissionv1.Stage) review.Answer {
	t.Helper()
	ctx, done := context.WithTimeout(t.Context(), 10*time.Second)
	defer done()
	a, err := d.Review(ctx, podReview(stage, `{"kind":"Pod","apiVersion":"v1"}`))
	if err != nil || !a.Response.GetAllowed() {
		t.Fatalf("got %v, %v", a.Response, err)
	}
	return a
}

// unexplained judges a review that has to be allowed, as API servers send them.
func unexplained(t *testing.T, d *dispatcher.Dispatcher, stage admissionv1.Stage) {
	t.Helper()
	r := podReview(stage, `{"kind":"Pod","apiVersion":"v1"}`)
	r.Explain = false
	if a, err := d.Review(t.Context(), r); err != nil || !a.Response.GetAllowed() {
		t.Fatalf("got %v, %v", a.Response, err)
	}
}

// shadowCounts are the calls in shadow, by outcome.
func shadowCounts(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	counts := map[string]float64{}
	for _, m := range families(t, g)["portcullis_hook_shadow_total"].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "outcome" {
				counts[l.GetValue()] += m.GetCounter().GetValue()
			}
		}
	}
	return counts
}

func expectCounts(t *testing.T, g prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	if diff := cmp.Diff(want, shadowCounts(t, g)); diff != "" {
		t.Errorf("calls in shadow (-want +got):\n%s", diff)
	}
}

// TestWhateverAHookInShadowSaysTheAnswerIsTheSame gives the hook every kind of answer. It compares with the answer of a review whose hook decides and
// allows.
func TestWhateverAHookInShadowSaysTheAnswerIsTheSame(t *testing.T) {
	says := func(v *admissionv1.AdmissionResponse, err error) inprocess.Handler {
		return func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			return v, err
		}
	}
	patch := func(patch string) inprocess.Handler {
		return says(&admissionv1.AdmissionResponse{Allowed: true, PatchType: "JSONPatch", Patch: []byte(patch)}, nil)
	}
	label := `[{"op":"add","path":"/metadata","value":{"labels":{"a":"b"}}}]`
	for name, tc := range map[string]struct {
		stage   admissionv1.Stage
		handler inprocess.Handler
		want    string
	}{
		"yes": {validate, says(&admissionv1.AdmissionResponse{Allowed: true}, nil), "allowed"},
		"yes, with all that there is to say": {validate, says(&admissionv1.AdmissionResponse{
			Allowed: true, Warnings: []string{"careful"}, AuditAnnotations: map[string]string{"a": "b"},
		}, nil), "allowed"},
		"no":                                 {validate, says(&admissionv1.AdmissionResponse{Warnings: []string{"careful"}}, nil), "denied"},
		"no, before anything was changed":    {mutate, says(&admissionv1.AdmissionResponse{}, nil), "denied"},
		"a patch":                            {mutate, patch(label), "patched"},
		"a patch that does not apply":        {mutate, patch(`[{"op":"remove","path":"/no"}]`), "patched"},
		"a patch that is none":               {mutate, patch(`{`), "failed"},
		"a patch of a hook that has no hand": {validate, patch(label), "failed"},
		"nothing":                            {validate, says(nil, errors.New("no database")), "failed"},
		"nothing that can be read":           {validate, says(nil, nil), "failed"},
		"boom": {mutate, func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			panic("boom")
		}, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handlers := map[string]inprocess.Handler{
					"s.test.dev": tc.handler, "z.test.dev": tc.handler, "v.test.dev": says(&admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{"mine"}}, nil), "m.test.dev": patch(label),
				}
				judge := func(s *match.Snapshot) (review.Answer, *prometheus.Registry) {
					d, metrics := over(t, s, inprocess.New(handlers))
					a := allowed(t, d, tc.stage)
					d.Close(t.Context())
					return a, metrics
				}
				inShadow, metrics := judge(oneEach(t))
				if o := inShadow.Outcomes[0]; o.GetOutcome() != "shadow" || o.GetReason() != "" {
					t.Errorf("outcome %v", o)
				}
				handlers["s.test.dev"] = says(yes().Verdict, nil)
				handlers["z.test.dev"] = handlers["s.test.dev"]
				agreeing, _ := judge(compile(t, []hook{{name: "s.test.dev"}, {name: "v.test.dev"}}, []hook{{name: "z.test.dev"}, {name: "m.test.dev"}}))
				inShadow.Outcomes, agreeing.Outcomes = nil, nil
				if diff := cmp.Diff(agreeing, inShadow, protocmp.Transform()); diff != "" {
					t.Errorf("answer (-with a hook that agrees +with it in shadow):\n%s", diff)
				}
				expectCounts(t, metrics, map[string]float64{tc.want: 1})
			})
		})
	}
}

// TestNobodyWaitsForAHookInShadow has a hook that never answers, whose timeout is longer than the review's.
func TestNobodyWaitsForAHookInShadow(t *testing.T) {
	for _, stage := range []admissionv1.Stage{validate, mutate, admit} {
		synctest.Test(t, func(t *testing.T) {
			backend := &deaf{}
			s := []hook{{name: "s.test.dev", shadow: true, time: 30 * time.Second}}
			d, metrics := over(t, compile(t, s, []hook{{name: "z.test.dev", shadow: true, time: 29 * time.Second}}), backend)
			begun := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			a, err := d.Review(ctx, podReview(stage, `{"kind":"Pod","apiVersion":"v1"}`))
			cancel()
			if took := time.Since(begun); err != nil || !a.Response.GetAllowed() || took > 0 {
				t.Errorf("%s: got %v, %v after %s", stage, a.Response, err, took)
			}
			started := backend.inShadow()
			<-time.After(28 * time.Second)
			synctest.Wait()
			expectCounts(t, metrics, map[string]float64{})
			<-time.After(3 * time.Second)
			synctest.Wait()
			expectCounts(t, metrics, map[string]float64{"failed": float64(len(started))})
			for _, b := range started {
				if !b.cancelled[0] {
					t.Errorf("%s: the backend was not told that the time of a call is over", stage)
				}
			}
			if n := sum(t, metrics, "portcullis_hook_failures_total"); n != float64(len(started)) || n == 0 {
				t.Errorf("%s: %v failures of %d calls", stage, n, len(started))
			}
		})
	}
}

// TestTheEndOfAReviewEndsNoCallInShadow has the review answered, and its caller gone, before the hook says no.
func TestTheEndOfAReviewEndsNoCallInShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &deaf{}
		d, metrics := over(t, oneEach(t), backend)
		allowed(t, d, validate)
		call := backend.inShadow()[0]
		if call.cancelled[0] {
			t.Error("the call was cancelled")
		}
		for range 2 { // a second result does not count
			call.done(0, review.Result{Verdict: &admissionv1.AdmissionResponse{}})
		}
		<-time.After(time.Minute)
		synctest.Wait()
		expectCounts(t, metrics, map[string]float64{"denied": 1})
		if call.cancelled[0] {
			t.Error("the call was cancelled after it had ended")
		}
	})
}

// TestCallsInShadowComeLastAndShareTheBody has two hooks of each kind.
func TestCallsInShadowComeLastAndShareTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &deaf{}
		d, metrics := over(t, compile(t, []hook{
			{name: "s.test.dev", shadow: true, time: 7 * time.Second}, {name: "v.test.dev"},
			{name: "t.test.dev", shadow: true, time: 8 * time.Second}, {name: "w.test.dev"},
		}, nil), backend)
		allowed(t, d, validate)
		beside := backend.inShadow()
		if len(backend.all) != 3 || len(backend.all[0].Calls) != 2 || len(beside) != 2 {
			t.Fatalf("%d batches, %d in shadow", len(backend.all), len(beside))
		}
		for _, b := range beside {
			if x, y := backend.all[0].Body.Buffers(), b.Body.Buffers(); &x[0][0] != &y[0][0] {
				t.Error("the bodies are not the same bytes")
			}
			b.done(0, yes())
		}
		if n := sum(t, metrics, "portcullis_review_encodings_total"); n != 1 {
			t.Errorf("%v encodings", n)
		}
		if apart := beside[1].Calls[0].Deadline.Sub(beside[0].Calls[0].Deadline); apart != time.Second {
			t.Errorf("the deadlines are %s apart: each call has the time of its hook", apart)
		}
		d.Close(t.Context())
	})
}

// TestOperatorsSeeWhatAHookInShadowWouldHaveDone looks at all that there is to see.
func TestOperatorsSeeWhatAHookInShadowWouldHaveDone(t *testing.T) {
	long := strings.Repeat("ä", 1000)
	for name, tc := range map[string]struct {
		says review.Result
		span map[string]string
		line string
		want []string
	}{
		"a denial": {
			review.Result{
				Verdict: &admissionv1.AdmissionResponse{Status: &admissionv1.Status{Message: "not on Fridays"}},
				Timing:  review.Timing{Instance: "one"},
			},
			map[string]string{"portcullis.outcome": "denied", "portcullis.denial": "not on Fridays", "portcullis.host.instance": "one"},
			`outcome=denied reason="not on Fridays" instance=one`,
			[]string{"shadow_total name=s.test.dev outcome=denied type=validating"},
		},
		"a long denial": {
			review.Result{Verdict: &admissionv1.AdmissionResponse{Status: &admissionv1.Status{Message: "x" + long}}},
			map[string]string{"portcullis.outcome": "denied", "portcullis.denial": "x" + long[:1022]},
			"", []string{"shadow_total name=s.test.dev outcome=denied type=validating"},
		},
		"a failure": {
			review.Fail(review.FailureLost, "gone"),
			map[string]string{"portcullis.outcome": "failed-open", "error.type": "lost"}, `outcome=failed reason=gone instance=""`,
			[]string{"failures_total kind=lost name=s.test.dev type=validating", "shadow_total name=s.test.dev outcome=failed type=validating"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backend, log, metrics, spans := &deaf{}, &bytes.Buffer{}, prometheus.NewRegistry(), tracetest.NewSpanRecorder()
				k := static{snapshot: compile(t, []hook{{name: "s.test.dev", shadow: true}}, nil)}
				d, err := dispatcher.New(dispatcher.Options{
					Snapshots: k, Clusters: k, Streams: backend,
					Options: observe.Options{
						Metrics: metrics, TracerProvider: trace.NewTracerProvider(trace.WithSpanProcessor(spans)),
						Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				allowed(t, d, validate)
				backend.inShadow()[0].done(0, tc.says)
				d.Close(t.Context())

				want := append([]string{"admission_duration_seconds name=s.test.dev operation=CREATE rejected=false type=validating"}, tc.want...)
				if diff := cmp.Diff(want, samples(t, metrics)); diff != "" {
					t.Errorf("metrics (-want +got):\n%s", diff)
				}
				ended := spans.Ended()
				call := ended[len(ended)-1]
				if call.Name() != "call s.test.dev" || call.Parent().SpanID() != ended[0].SpanContext().SpanID() {
					t.Errorf("the last span is %s, a child of %s", call.Name(), call.Parent().SpanID())
				}
				got := map[string]string{}
				for _, a := range call.Attributes() {
					got[string(a.Key)] = a.Value.Emit()
				}
				tc.span["portcullis.shadow"] = "true"
				for key, value := range tc.span {
					if got[key] != value {
						t.Errorf("attribute %s is %q, want %q", key, got[key], value)
					}
				}
				if !strings.Contains(log.String(), `level=DEBUG msg="hook in shadow" uid=u cluster=c configuration=v hook=s.test.dev `+tc.line) ||
					strings.Count(log.String(), "\n") != 1 {
					t.Errorf("log %s", log.String())
				}
			})
		})
	}
}

// TestOverStreamsAHookInShadowDecidesAndDelaysNothing has it hang on the host that serves the one which decides.
func TestOverStreamsAHookInShadowDecidesAndDelaysNothing(t *testing.T) {
	m := newMesh(t, []hook{{name: "s.test.dev", shadow: true}, {name: "v.test.dev"}}, []hook{{name: "z.test.dev", shadow: true}, {name: "m.test.dev"}})
	answered := make(chan struct{})
	later := func(ctx context.Context, _ *hostsdk.Request) (*hostsdk.Response, error) {
		select {
		case <-answered:
			return hostsdk.Deny("never"), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	m.host("one",
		hostsdk.Validate("s.test.dev", later),
		hostsdk.Mutate("z.test.dev", later),
		hostsdk.Validate("v.test.dev", allow),
		hostsdk.Mutate("m.test.dev", allow),
	)
	const reviews = 20
	for range reviews {
		for _, stage := range []admissionv1.Stage{validate, mutate} {
			if a := m.review(stage, `{"kind":"Pod"}`); !a.Response.GetAllowed() {
				t.Fatalf("got %v", a.Response)
			}
		}
	}
	close(answered)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	m.dispatcher.Close(ctx)
	expectCounts(t, m.metrics, map[string]float64{"denied": 2 * reviews})
}

// TestManyCallsInShadowEndOnceEach has them end in every way at the same time, for the race detector and the goroutines
// that are left.
func TestManyCallsInShadowEndOnceEach(t *testing.T) {
	s := []hook{{name: "s.test.dev", shadow: true, time: 2 * time.Millisecond}, {name: "t.test.dev", shadow: true, time: time.Second}, {name: "v.test.dev"}}
	backend := inprocess.New(map[string]inprocess.Handler{
		"s.test.dev": func(ctx context.Context, _ *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			<-ctx.Done()
			return &admissionv1.AdmissionResponse{}, nil
		},
		"t.test.dev": func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			return &admissionv1.AdmissionResponse{}, nil
		},
		"v.test.dev": func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			return &admissionv1.AdmissionResponse{Allowed: true}, nil
		},
	})
	d, metrics := over(t, compile(t, s, nil), backend)
	const callers, each = 8, 100
	var running sync.WaitGroup
	for i := range callers {
		running.Go(func() {
			for n := range each {
				if i == 0 && n == each/2 {
					over, cancel := context.WithCancel(t.Context())
					cancel()
					d.Close(over)
				}
				a, err := d.Review(t.Context(), podReview(validate, `{"kind":"Pod"}`))
				if err != nil || !a.Response.GetAllowed() {
					t.Errorf("got %v, %v", a.Response, err)
				}
			}
		})
	}
	running.Wait()
	d.Close(t.Context())
	backend.Wait()
	total := 0.0
	for outcome, n := range shadowCounts(t, metrics) {
		if !slices.Contains([]string{"denied", "failed", "dropped"}, outcome) {
			t.Errorf("%v calls %s", n, outcome)
		}
		total += n
	}
	if total != 2*callers*each {
		t.Errorf("%v calls are counted, want %d", total, 2*callers*each)
	}
}
