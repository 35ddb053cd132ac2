package telemetry

import (
	"context"
	"log/slog"
	"os"
	"strings"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/contrib/propagators/autoprop"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// The variables that decide here whether there is anything to read; autoexport, autoprop and the SDK read these and all others.
const (
	envDisabled        = "OTEL_SDK_DISABLED"
	envPropagators     = "OTEL_PROPAGATORS"
	envTracesExporter  = "OTEL_TRACES_EXPORTER"
	envTracesSampler   = "OTEL_TRACES_SAMPLER"
	envMetricsExporter = "OTEL_METRICS_EXPORTER"
	envEndpoint        = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint  = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
)

// disabled reports whether OpenTelemetry is switched off.
func disabled() bool { return strings.EqualFold(strings.TrimSpace(os.Getenv(envDisabled)), "true") }

// spanExporterFromEnv makes the exporter that the environment names; nil for none, and where a variable is not understood.
func spanExporterFromEnv(ctx context.Context, log *slog.Logger) sdktrace.SpanExporter {
	if os.Getenv(envTracesExporter) == "" && os.Getenv(envEndpoint) == "" && os.Getenv(envTracesEndpoint) == "" {
		return nil
	}
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		log.WarnContext(ctx, "traces are not exported: a variable is not understood; "+
			"OTEL_TRACES_EXPORTER is otlp, console or none, OTEL_EXPORTER_OTLP_PROTOCOL is grpc or http/protobuf",
			"error", err, envTracesExporter, os.Getenv(envTracesExporter))
		return nil
	}
	if autoexport.IsNoneSpanExporter(exporter) {
		return nil
	}
	return exporter
}

// propagatorFromEnv makes the propagators that OTEL_PROPAGATORS lists, and W3C Trace Context without it. Baggage has to be asked for, unlike in the
// specification: callers could have the mesh send webhooks anything in it.
func propagatorFromEnv(ctx context.Context, log *slog.Logger) propagation.TextMapPropagator {
	names := strings.ReplaceAll(os.Getenv(envPropagators), " ", "")
	if names == "" {
		return propagation.TraceContext{}
	}
	propagator, err := autoprop.TextMapPropagator(strings.Split(names, ",")...)
	if err != nil {
		log.WarnContext(ctx, "OTEL_PROPAGATORS is not understood as a whole; "+
			"it lists tracecontext, baggage, b3, b3multi, jaeger, xray, ottrace or none", "error", err)
	}
	if propagator == nil {
		return propagation.TraceContext{}
	}
	return propagator
}
