package hostsdk

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// countingSampler is a sampler that counts how often it is asked.
type countingSampler struct {
	sdktrace.Sampler

	times int
}

// ShouldSample implements [sdktrace.Sampler].
func (a *countingSampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	a.times++
	return a.Sampler.ShouldSample(p)
}

// TestASamplerIsAskedAboutUnsampledTracesAsOftenAsItMayChooseSome asks twice within tracingInterval, and once after it.
func TestASamplerIsAskedAboutUnsampledTracesAsOftenAsItMayChooseSome(t *testing.T) {
	const of = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
	for name, tc := range map[string]struct {
		sampler     sdktrace.Sampler
		flags       string
		asked       int
		ownSpan     []bool // of each call: the handler has a span of the host
		wantSampled bool
	}{
		"a sampler that follows the dispatcher is asked again later":      {sdktrace.ParentBased(sdktrace.AlwaysSample()), "00", 2, []bool{true, false, true}, false},
		"a sampler that samples by itself is asked each time":             {sdktrace.AlwaysSample(), "00", 3, []bool{true, true, true}, true},
		"a sampler is asked about each trace that the dispatcher samples": {sdktrace.ParentBased(sdktrace.AlwaysSample()), "01", 3, []bool{true, true, true}, true},
		"a sampler of sampled traces alone is asked about each of these":  {sdktrace.NeverSample(), "01", 3, []bool{true, true, true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			sampler := &countingSampler{Sampler: tc.sampler}
			tracing := newTracing(sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler)))
			for i, at := range []time.Time{start, start.Add(tracingInterval - 1), start.Add(tracingInterval)} {
				ctx, span := tracing.start(asking(t, "00-"+of+"-"+tc.flags), at)
				got := trace.SpanContextFromContext(ctx)
				if got.TraceID().String() != of[:32] || got.IsSampled() != tc.wantSampled || span.IsRecording() != tc.wantSampled {
					t.Errorf("call %d is in trace %s, sampled %t", i, got.TraceID(), got.IsSampled())
				}
				if own := got.SpanID().String() != of[33:]; own != tc.ownSpan[i] {
					t.Errorf("call %d has a span of its own: %t", i, own)
				}
			}
			if sampler.times != tc.asked {
				t.Errorf("the sampler was asked %d times, want %d", sampler.times, tc.asked)
			}
		})
	}
}

// TestASpanDecodesNoRequest: of a request that the handler does not look at, the span names the cluster.
func TestASpanDecodesNoRequest(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracing := newTracing(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	inv := asking(t, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	inv.review.request.encoded = marshal(t, asked())
	_, span := tracing.start(inv, start)
	endSpan(span, inv, start)
	if inv.review.request.decoded.Load() != nil {
		t.Error("the request was decoded")
	}
	if cluster := attribute.String("k8s.cluster.name", asked().GetCluster()); !slices.Contains(spans.Ended()[0].Attributes(), cluster) {
		t.Errorf("no %v: %v", cluster, spans.Ended()[0].Attributes())
	}
}

// TestATraceThatIsReadLate is there whatever the handler asked its context for before.
func TestATraceThatIsReadLate(t *testing.T) {
	gone := errors.New("gone")
	type ofCaller struct{}
	for name, before := range map[string]func(context.Context) context.Context{
		"nothing":    func(ctx context.Context) context.Context { return ctx },
		"its end":    func(ctx context.Context) context.Context { ctx.Done(); return ctx },
		"its parent": func(ctx context.Context) context.Context { return context.WithValue(ctx, ofCaller{}, "x") },
		"a part ends": func(ctx context.Context) context.Context {
			ctx, stop := context.WithCancel(ctx)
			t.Cleanup(stop)
			return ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			tracing, inv := newTracing(noop.NewTracerProvider()), asking(t, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")
			inv.review.Tracestate = []byte("vendor=value")
			tracing.idle.Store(math.MaxInt64)
			ctx, _ := tracing.start(inv, start)
			ctx = before(ctx)
			got := trace.SpanContextFromContext(ctx)
			if got.TraceID().String() != "4bf92f3577b34da6a3ce929d0e0e4736" || got.TraceState().String() != "vendor=value" || !got.IsRemote() {
				t.Errorf("the handler is in trace %s, state %q", got.TraceID(), got.TraceState())
			}
			inv.ctx.end(gone)
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, gone) {
				t.Errorf("it ended since %v", cause)
			}
		})
	}
}

// asking is a call whose review has a trace.
func asking(tb testing.TB, traceparent string) *invocation {
	tb.Helper()
	r := &review{ReviewView: wire.ReviewView{Traceparent: []byte(traceparent), Hooks: make([]wire.HookCallView, 1)}}
	inv := &invocation{review: r, hook: &hook{span: "handle h"}, received: start}
	inv.ctx.init(tb.Context(), time.Now().Add(time.Hour))
	tb.Cleanup(inv.ctx.handlerReturned)
	return inv
}

// BenchmarkUnsampled measures the cost of a call's trace for a host that samples as the dispatcher does, if the dispatcher
// did not sample it.
func BenchmarkUnsampled(b *testing.B) {
	tracing := newTracing(sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample()))))
	inv := asking(b, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")
	b.ReportAllocs()
	for b.Loop() {
		_, span := tracing.start(inv, time.Now())
		span.End()
	}
}
