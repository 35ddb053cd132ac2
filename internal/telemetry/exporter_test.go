package telemetry

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
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
