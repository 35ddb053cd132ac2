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
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// The variables that are read here; all others are read by the SDK and its exporters.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

// none is the value that switches exporters off.
const none = "none"

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

// processorsFromEnv makes one span processor for each exporter that OTEL_TRACES_EXPORTER names.
func processorsFromEnv(ctx context.Context, log *slog.Logger) ([]sdktrace.SpanProcessor, error) {
	fallback := none
	if os.Getenv(envEndpoint) != "" || os.Getenv(envTracesEndpoint) != "" {
		fallback = "otlp"
	}
	var processors []sdktrace.SpanProcessor
	for _, name := range listFromEnv(envExporter, fallback) {
		switch name {
		case none:
		case "otlp":
			exporter, err := otlpFromEnv(ctx, log)
			if err != nil {
				return nil, fmt.Errorf("exporting traces by OTLP, see the OTEL_EXPORTER_OTLP_* variables: %w", err)
			}
			processors = append(processors, sdktrace.NewBatchSpanProcessor(&reporter{SpanExporter: exporter, log: log}))
		case "console":
			processors = append(processors, sdktrace.NewSimpleSpanProcessor(&console{w: os.Stdout}))
		default:
			warnIgnored(ctx, log, envExporter, name, "otlp, console, none")
		}
	}
	return processors, nil
}

// otlpFromEnv makes the OTLP exporter of the configured protocol; the specification's default is http/protobuf. It does not dial.
func otlpFromEnv(ctx context.Context, log *slog.Logger) (sdktrace.SpanExporter, error) {
	variable := envProtocol
	if os.Getenv(envTracesProtocol) != "" {
		variable = envTracesProtocol
	}
	switch protocol := strings.TrimSpace(os.Getenv(variable)); protocol {
	case "grpc":
		return otlptracegrpc.New(ctx)
	case "http/protobuf", "":
	default:
		warnIgnored(ctx, log, variable, protocol, "grpc, http/protobuf")
	}
	return otlptracehttp.New(ctx)
}

// warnIgnored warns about an unknown value. The specification wants it ignored, not refused.
func warnIgnored(ctx context.Context, log *slog.Logger, variable, value, known string) {
	log.WarnContext(ctx, "a variable holds a value that is not known here; it is ignored",
		"variable", variable, "value", value, "known", known)
}
