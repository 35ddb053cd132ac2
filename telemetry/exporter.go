package telemetry

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"time"

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

// console writes each span as one line of JSON, for people without a collector. The format is not stable.
type console struct {
	mu sync.Mutex // guards w
	w  io.Writer
}

type consoleSpan struct {
	Trace      string            `json:"trace"`
	Span       string            `json:"span"`
	Parent     string            `json:"parent,omitempty"`
	Name       string            `json:"name"`
	Kind       string            `json:"kind"`
	Start      time.Time         `json:"start"`
	Duration   string            `json:"duration"`
	Status     string            `json:"status,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// ExportSpans writes the spans.
func (c *console) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	encoder := json.NewEncoder(c.w)
	for _, span := range spans {
		if err := encoder.Encode(line(span)); err != nil {
			return err
		}
	}
	return nil
}

// Shutdown does nothing: the writer is the caller's.
func (c *console) Shutdown(context.Context) error { return nil }

func line(span sdktrace.ReadOnlySpan) consoleSpan {
	l := consoleSpan{
		Trace:      span.SpanContext().TraceID().String(),
		Span:       span.SpanContext().SpanID().String(),
		Name:       span.Name(),
		Kind:       span.SpanKind().String(),
		Start:      span.StartTime(),
		Duration:   span.EndTime().Sub(span.StartTime()).String(),
		Status:     span.Status().Description,
		Attributes: map[string]string{},
	}
	if span.Parent().IsValid() {
		l.Parent = span.Parent().SpanID().String()
	}
	for _, a := range span.Attributes() {
		l.Attributes[string(a.Key)] = a.Value.Emit()
	}
	return l
}
