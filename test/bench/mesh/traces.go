package mesh

import (
	"context"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// sampledShare is the share of reviews whose spans are made.
const sampledShare = 0.01

// traces are providers of spans as package telemetry makes them, whose exporter drops everything.
type traces struct {
	sampled, kept *sdktrace.TracerProvider
	// close ends the batching of both, which is one.
	close func() error
}

// newTraces makes providers that last until they are closed, also when ctx has ended.
func newTraces(ctx context.Context) *traces {
	batches := sdktrace.WithSpanProcessor(sdktrace.NewBatchSpanProcessor(dropping{}))
	sampled := sdktrace.NewTracerProvider(batches, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(sampledShare))))
	return &traces{
		sampled: sampled,
		kept:    sdktrace.NewTracerProvider(batches, sdktrace.WithSampler(sdktrace.AlwaysSample())),
		close:   func() error { return sampled.Shutdown(context.WithoutCancel(ctx)) },
	}
}

// dropping is an exporter that drops everything.
type dropping struct{}

// ExportSpans is part of sdktrace.SpanExporter.
func (dropping) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }

// Shutdown is part of sdktrace.SpanExporter.
func (dropping) Shutdown(context.Context) error { return nil }
