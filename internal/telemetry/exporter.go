package telemetry

import (
	"context"
	"log/slog"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// reporter is an exporter that logs a failure once, not once per batch: a collector that is down must not fill the
// log. It returns no error, since the SDK would print it past the logger. The SDK calls one method at a time.
type reporter struct {
	sdktrace.SpanExporter

	log     *slog.Logger
	failing bool
}

// ExportSpans exports the spans; it never fails.
func (r *reporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !r.failing:
		r.log.WarnContext(ctx, "traces are not exported; check the OTEL_EXPORTER_OTLP_* variables and the collector",
			"error", err, "spans_lost", len(spans))
	case err == nil && r.failing:
		r.log.InfoContext(ctx, "traces are exported again")
	}
	r.failing = err != nil
	return nil
}
