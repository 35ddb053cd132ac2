// Package telemetry sets up traces by the OpenTelemetry API, configured by the standard OTEL_* variables; structured
// logs; and the handler of the admin port with health, readiness and metrics.
//
// It makes no instruments (each package has its own), opens no listener, and sets nothing global: callers pass the
// TracerProvider of a Telemetry on. Everything here may be used from any goroutine.
package telemetry

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// DefaultServiceName is the service.name of traces when neither Options, OTEL_SERVICE_NAME nor OTEL_RESOURCE_ATTRIBUTES sets one.
const DefaultServiceName = "portcullis"

// Options configure a Telemetry, besides the environment.
type Options struct {
	// ServiceName is the service.name of traces unless the environment names one; empty means DefaultServiceName.
	ServiceName string
	// ServiceVersion is the service.version of traces; empty leaves it out.
	ServiceVersion string
	// ServiceInstance is the service.instance.id of traces, which tells replicas apart; empty leaves it out.
	ServiceInstance string
	// Logger receives the variables that are not understood, and failures to export spans; nil logs nothing.
	Logger *slog.Logger
}

// Telemetry is the tracing of one process.
type Telemetry struct {
	// TracerProvider makes the tracers. It records nothing when no exporter is configured; the context of a caller's trace
	// is passed on even then.
	TracerProvider trace.TracerProvider

	shutdown func(context.Context) error
}

// New sets tracing up by the variables of the OpenTelemetry specification. Spans are exported when an OTLP endpoint
// is named (OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) or OTEL_TRACES_EXPORTER names an exporter;
// unlike in the specification, the default is no export, so that a process without a collector logs no failures.
// The SDK itself reads the variables of sampler, limits, batching and resource. A value that is not understood is
// logged and ignored. Nothing is dialled: a missing collector shows when spans are exported.
func New(ctx context.Context, o Options) (*Telemetry, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	t := &Telemetry{
		TracerProvider: noop.NewTracerProvider(),
		shutdown:       func(context.Context) error { return nil },
	}
	if strings.EqualFold(strings.TrimSpace(os.Getenv(envDisabled)), "true") {
		return t, nil
	}
	processors, err := processorsFromEnv(ctx, o.Logger)
	if err != nil || len(processors) == 0 {
		return t, err
	}
	options := []sdktrace.TracerProviderOption{sdktrace.WithResource(o.resource(ctx))}
	for _, p := range processors {
		options = append(options, sdktrace.WithSpanProcessor(p))
	}
	provider := sdktrace.NewTracerProvider(options...)
	t.TracerProvider, t.shutdown = provider, provider.Shutdown
	return t, nil
}

// Shutdown exports the queued spans and ends the background work of the exporters, or gives up when ctx ends. Later calls
// do nothing.
func (t *Telemetry) Shutdown(ctx context.Context) error { return t.shutdown(ctx) }

// resource describes the process that the spans come from. The environment takes precedence.
func (o Options) resource(ctx context.Context) *resource.Resource {
	attributes := []attribute.KeyValue{attribute.String("service.name", cmp.Or(o.ServiceName, DefaultServiceName))}
	if o.ServiceVersion != "" {
		attributes = append(attributes, attribute.String("service.version", o.ServiceVersion))
	}
	if o.ServiceInstance != "" {
		attributes = append(attributes, attribute.String("service.instance.id", o.ServiceInstance))
	}
	r, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(attributes...), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrSchemaURLConflict) {
		o.Logger.WarnContext(ctx, "OTEL_RESOURCE_ATTRIBUTES is not understood as a whole", "error", err)
	}
	return r
}
