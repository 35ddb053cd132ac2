package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// The variables that are read here; all others are read by the SDK and its exporters.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envPropagators    = "OTEL_PROPAGATORS"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

// The words that those variables may hold.
const (
	exporterNone    = "none"
	exporterOTLP    = "otlp"
	exporterConsole = "console"

	protocolGRPC = "grpc"
	protocolHTTP = "http/protobuf" // the specification's default
)

func disabledByEnv() bool {
	return strings.EqualFold(strings.TrimSpace(os.Getenv(envDisabled)), "true")
}

// listFromEnv reads a variable that holds a list; the fallback stands for an unset or empty one.
func listFromEnv(name, fallback string) []string {
	var list []string
	for _, word := range strings.Split(cmp.Or(strings.TrimSpace(os.Getenv(name)), fallback), ",") {
		if word = strings.TrimSpace(word); word != "" && !slices.Contains(list, word) {
			list = append(list, word)
		}
	}
	return list
}

// processorsFromEnv makes what takes the spans that have ended: one processor for each exporter.
func processorsFromEnv(ctx context.Context, o Options) ([]sdktrace.SpanProcessor, error) {
	fallback := exporterNone
	if os.Getenv(envEndpoint) != "" || os.Getenv(envTracesEndpoint) != "" {
		fallback = exporterOTLP
	}
	var processors []sdktrace.SpanProcessor
	for _, name := range listFromEnv(envExporter, fallback) {
		switch name {
		case exporterNone:
		case exporterOTLP:
			exporter, err := otlpFromEnv(ctx, o.Logger)
			if err != nil {
				return nil, fmt.Errorf("exporting traces by OTLP, see the OTEL_EXPORTER_OTLP_* variables: %w", err)
			}
			processors = append(processors, sdktrace.NewBatchSpanProcessor(&reporter{SpanExporter: exporter, log: o.Logger}))
		case exporterConsole:
			processors = append(processors, sdktrace.NewSimpleSpanProcessor(&console{w: o.Console}))
		default:
			ignored(ctx, o.Logger, envExporter, name, exporterOTLP, exporterConsole, exporterNone)
		}
	}
	return processors, nil
}

// otlpFromEnv makes the OTLP exporter of the configured protocol. It does not dial.
func otlpFromEnv(ctx context.Context, log *slog.Logger) (sdktrace.SpanExporter, error) {
	variable := envProtocol
	if os.Getenv(envTracesProtocol) != "" {
		variable = envTracesProtocol
	}
	switch protocol := strings.TrimSpace(os.Getenv(variable)); protocol {
	case protocolGRPC:
		return otlptracegrpc.New(ctx)
	case protocolHTTP, "":
	default:
		ignored(ctx, log, variable, protocol, protocolGRPC, protocolHTTP)
	}
	return otlptracehttp.New(ctx)
}

// propagatorFromEnv makes the propagator that OTEL_PROPAGATORS names; it works also when the SDK is disabled.
func propagatorFromEnv(ctx context.Context, log *slog.Logger) propagation.TextMapPropagator {
	var all []propagation.TextMapPropagator
	for _, name := range listFromEnv(envPropagators, "tracecontext,baggage") {
		switch name {
		case "tracecontext":
			all = append(all, propagation.TraceContext{})
		case "baggage":
			all = append(all, propagation.Baggage{})
		case exporterNone:
		default:
			ignored(ctx, log, envPropagators, name, "tracecontext", "baggage", exporterNone)
		}
	}
	return propagation.NewCompositeTextMapPropagator(all...)
}

// ignored warns about a value that is not understood. The specification wants it left aside, not refused.
func ignored(ctx context.Context, log *slog.Logger, variable, value string, known ...string) {
	log.WarnContext(ctx, "a variable holds a value that is not known here; it is ignored",
		"variable", variable, "value", value, "known", strings.Join(known, ", "))
}
