package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// exporterFunc is an exporter of one function.
type exporterFunc func() error

func (f exporterFunc) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return f() }
func (f exporterFunc) Shutdown(context.Context) error                             { return nil }

func TestReporterSaysOnceThatExportFailsAndOnceThatItWorksAgain(t *testing.T) {
	var log bytes.Buffer
	var failure error
	r := &reporter{
		SpanExporter: exporterFunc(func() error { return failure }),
		log:          slog.New(slog.NewTextHandler(&log, nil)),
	}
	down := errors.New("connection refused")
	for _, failure = range []error{nil, down, down, nil, nil, down} {
		if err := r.ExportSpans(t.Context(), nil); err != nil {
			t.Fatalf("the error is handed on: %v", err)
		}
	}
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(log.String()), "\n") {
		switch {
		case strings.Contains(line, "not exported") && strings.Contains(line, "connection refused"):
			got = append(got, "down")
		case strings.Contains(line, "exported again"):
			got = append(got, "up")
		default:
			t.Errorf("unexpected line: %s", line)
		}
	}
	if strings.Join(got, " ") != "down up down" {
		t.Errorf("the log says %q, want down up down:\n%s", got, &log)
	}
}

func TestConsoleWritesALineForEachSpan(t *testing.T) {
	var out bytes.Buffer
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(&console{w: &out})).Tracer("test")
	ctx, parent := tracer.Start(t.Context(), "portcullis.review")
	_, child := tracer.Start(ctx, "portcullis.call", trace.WithSpanKind(trace.SpanKindClient))
	child.SetAttributes(attribute.String("portcullis.hook", "a.b.c"), attribute.Int("portcullis.round", 1))
	child.SetStatus(codes.Error, "timeout")
	child.End()
	parent.End()

	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2:\n%s", len(lines), &out)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &got); err != nil {
		t.Fatal(err)
	}
	for _, varies := range []string{"start", "duration"} {
		if got[varies] == "" {
			t.Errorf("no %s in %s", varies, lines[0])
		}
		delete(got, varies)
	}
	want := map[string]any{
		"trace": parent.SpanContext().TraceID().String(), "span": child.SpanContext().SpanID().String(),
		"parent": parent.SpanContext().SpanID().String(), "name": "portcullis.call", "kind": "client", "status": "timeout",
		"attributes": map[string]any{"portcullis.hook": "a.b.c", "portcullis.round": "1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}
