package bridge

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

const (
	// instrumentationName names the tracer.
	instrumentationName = "github.com/portcullis-mesh/portcullis/bridge"
	// spanName is the span of one review at the edge.
	spanName = "portcullis.bridge.review"
	// maxAttribute bounds what a caller can put into a span, in bytes: names in Kubernetes have at most 253.
	maxAttribute = 256
)

// tracerOf is the tracer of a provider; nil when it records nothing.
func tracerOf(provider trace.TracerProvider) trace.Tracer {
	if _, off := provider.(noop.TracerProvider); off || provider == nil {
		return nil
	}
	return provider.Tracer(instrumentationName)
}

// startSpan begins the span of a review, below the API server's own if it sent a traceparent (SEMANTICS C39). Only
// callers that were let in get one. Where nothing is recorded the API server's trace leads on to the hooks all the same.
func (x *exchange) startSpan(ctx context.Context) context.Context {
	if x.request.Header.Get("Traceparent") != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(x.request.Header))
	}
	if x.bridge.tracer == nil {
		x.span = trace.SpanFromContext(ctx)
		return ctx
	}
	ctx, x.span = x.bridge.tracer.Start(ctx, spanName,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(x.started))
	if x.span.IsRecording() {
		x.span.SetAttributes(
			attribute.String("portcullis.cluster", bounded(x.cluster)),
			attribute.String("portcullis.stage", stageName(x.stage)),
			attribute.String("portcullis.entry", bounded(x.entry.Name)),
		)
	}
	return ctx
}

// endSpan ends the span with the outcome of the review. A denial is a result; a review that was not judged is an error.
func (x *exchange) endSpan() {
	if x.span.IsRecording() {
		x.span.SetAttributes(
			attribute.String("portcullis.uid", bounded(x.uid)),
			attribute.String("portcullis.outcome", string(x.outcome)),
			attribute.Int("http.request.body.size", len(x.body)),
			attribute.Int("http.response.status_code", x.code),
		)
		if x.failure != "" {
			x.span.SetStatus(codes.Error, bounded(x.failure))
		}
	}
	x.span.End()
}

// bounded cuts a text to what a span may hold.
func bounded(text string) string {
	if len(text) <= maxAttribute {
		return text
	}
	return strings.ToValidUTF8(text[:maxAttribute], "")
}
