package hostsdk

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// instrumentation is the scope of the SDK's spans.
const instrumentation = "github.com/portcullis-mesh/portcullis/hostsdk"

// tracing makes the spans of handlers. Most hosts have none: a tracer that made none is asked again after tracingInterval.
// Safe for concurrent use.
type tracing struct {
	tracer  trace.Tracer
	options []trace.SpanStartOption
	idle    atomic.Int64 // the tracer is not asked before, in nanoseconds of Unix time
}

func newTracing(provider trace.TracerProvider) *tracing {
	return &tracing{
		tracer:  provider.Tracer(instrumentation),
		options: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)},
	}
}

// start starts the handler's span as a child of the call's span in the dispatcher. In a trace that is sampled it begins when the review was
// received, and the event "queued" is when the handler is called.
func (t *tracing) start(inv *invocation, now time.Time) (context.Context, trace.Span) {
	ctx := context.Context(&inv.ctx)
	if inv.review.Traceparent != "" {
		ctx = remote(ctx, inv)
	}
	if now.UnixNano() < t.idle.Load() {
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
	if span.IsRecording() {
		explain(span, inv, now)
	}
	return spanCtx, span
}

func explain(span trace.Span, inv *invocation, started time.Time) {
	span.AddEvent("queued", trace.WithTimestamp(started))
	span.SetAttributes(
		attribute.String("portcullis.hook", inv.hook.id.name),
		attribute.String("portcullis.stage", stageName(inv.hook.id.stage)),
		attribute.String("k8s.cluster.name", inv.subject().GetCluster()),
		attribute.Float64("portcullis.queue.duration", started.Sub(inv.received).Seconds()),
		attribute.Int64("portcullis.call", int64(inv.id)),
	)
}

// remote adds the call's span in the dispatcher to ctx. The traceparent of a frame is that of the whole review, which may
// hold calls of several hooks.
func remote(ctx context.Context, inv *invocation) context.Context {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
		"traceparent": inv.review.Traceparent,
		"tracestate":  inv.review.Tracestate,
	})
	parent, id := trace.SpanContextFromContext(ctx), inv.call().Span
	if !parent.IsValid() || len(id) != len(trace.SpanID{}) {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, parent.WithSpanID(trace.SpanID(id)))
}
