package hostsdk

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// instrumentation is the scope of the SDK's spans and metrics.
const instrumentation = "github.com/portcullis-mesh/portcullis/hostsdk"

// tracing makes the spans of handlers. Most hosts have none, and most samplers decide as the dispatcher did: a tracer that made no span is
// asked again after tracingInterval. Safe for concurrent use.
type tracing struct {
	tracer  trace.Tracer
	options []trace.SpanStartOption
	// The tracer is not asked before, in nanoseconds of Unix time.
	idle      atomic.Int64
	unsampled atomic.Int64 // in traces that are not sampled; samplesItself after it sampled any
}

// spanAttributes is how many attributes the span of a handler gets at most.
const spanAttributes = 6

// samplesItself marks a tracer that is asked about each trace that is not sampled.
const samplesItself = -1

func newTracing(provider trace.TracerProvider) *tracing {
	return &tracing{
		tracer:  provider.Tracer(instrumentation),
		options: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)},
	}
}

// start starts the handler's span as a child of the call's span in the dispatcher. In a trace that is sampled it begins when the review was
// received, and the event "queued" is when the handler is called. Where no span is made the handler is in the trace of the call all the same.
func (t *tracing) start(inv *invocation, now time.Time) (context.Context, trace.Span) {
	unsampled, idle := inv.review.unsampled(), now.UnixNano() < t.idle.Load()
	if unsampled && (idle || now.UnixNano() < t.unsampled.Load()) {
		inv.ctx.unread = inv
		return &inv.ctx, noop.Span{}
	}
	ctx := context.Context(&inv.ctx)
	if len(inv.review.Traceparent) > 0 {
		ctx = remote(ctx, inv)
	}
	if idle {
		return ctx, noop.Span{}
	}
	parent, options := trace.SpanContextFromContext(ctx), t.options
	if parent.IsSampled() {
		options = append(slices.Clip(options), trace.WithTimestamp(inv.received))
	}
	spanCtx, span := t.tracer.Start(ctx, inv.hook.span, options...)
	if span.SpanContext().SpanID() == parent.SpanID() {
		t.idle.Store(now.Add(tracingInterval).UnixNano())
		return ctx, noop.Span{}
	}
	if unsampled {
		t.learn(span.IsRecording(), now)
	}
	if span.IsRecording() {
		span.AddEvent("queued", trace.WithTimestamp(now))
	}
	return spanCtx, span
}

// learn takes note of whether the tracer sampled a trace that the dispatcher did not. From then on the tracer is asked about each such trace: its
// sampler may choose some of them.
func (t *tracing) learn(sampled bool, now time.Time) {
	if sampled {
		t.unsampled.Store(samplesItself)
	} else if last := t.unsampled.Load(); last != samplesItself {
		t.unsampled.CompareAndSwap(last, now.Add(tracingInterval).UnixNano())
	}
}

// endSpan ends the span of a handler with its attributes. They are set at once: the span doubles its room each time.
func endSpan(span trace.Span, inv *invocation, started time.Time) {
	if span.IsRecording() {
		attributes := append(make([]attribute.KeyValue, 0, spanAttributes),
			attribute.String("portcullis.hook", inv.hook.id.name),
			attribute.String("portcullis.stage", string(stageOf(inv.hook.id.stage))),
			attribute.String("k8s.cluster.name", inv.subject().Cluster()),
			attribute.Float64("portcullis.queue.duration", started.Sub(inv.received).Seconds()),
			attribute.Int64("portcullis.call", int64(inv.id)),
		)
		if answer := inv.verdict.GetResponse(); answer != nil {
			attributes = append(attributes, attribute.Bool("portcullis.allowed", answer.GetAllowed()))
		}
		span.SetAttributes(attributes...)
	}
	span.End()
}

// remote adds the call's span in the dispatcher to ctx. The traceparent of a frame belongs to the whole review, which may
// hold calls of several hooks.
func remote(ctx context.Context, inv *invocation) context.Context {
	ctx = propagation.TraceContext{}.Extract(ctx, received{inv.review})
	parent, id := trace.SpanContextFromContext(ctx), inv.call().Span
	if !parent.IsValid() || len(id) != len(trace.SpanID{}) {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, parent.WithSpanID(trace.SpanID(id)))
}

// unsampled reports whether the review has a trace, and the dispatcher does not sample it.
func (r *review) unsampled() bool {
	return len(r.Traceparent) == wire.TraceparentBytes && bytes.HasSuffix(r.Traceparent, []byte("-00"))
}

// received is the trace of a review as a propagator reads it.
type received struct{ *review }

// Get implements [propagation.TextMapCarrier].
func (r received) Get(key string) string {
	switch key {
	case "traceparent":
		return string(r.Traceparent)
	case "tracestate":
		return string(r.Tracestate)
	}
	return ""
}

// Set implements [propagation.TextMapCarrier]. Nothing is written here.
func (received) Set(string, string) {}

// Keys implements [propagation.TextMapCarrier].
func (received) Keys() []string { return []string{"traceparent", "tracestate"} }
