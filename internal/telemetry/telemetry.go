// Package telemetry sets up traces and the export of metrics by OpenTelemetry, configured by the standard OTEL_* variables; structured
// logs; and the handler of the admin port with health, readiness and metrics.
//
// It makes no instruments (each package has its own), opens no listener, and sets nothing global but the error handler of OpenTelemetry: callers pass
// the TracerProvider of a Telemetry on. Everything here may be used from any goroutine.
package telemetry

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// DefaultServiceName is the service.name of traces when neither Options, OTEL_SERVICE_NAME nor OTEL_RESOURCE_ATTRIBUTES sets one.
const DefaultServiceName = "portcullis"

// shutdownTimeout bounds the exports at the end of a process.
const shutdownTimeout = 5 * time.Second

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

// Telemetry is the tracing, and the export of metrics, of one process.
type Telemetry struct {
	// TracerProvider makes the tracers. It records nothing when no exporter is configured; the context of a caller's trace
	// is passed on even then.
	TracerProvider trace.TracerProvider
	// Kept makes spans that are exported whatever the sampler says; nil where nothing is exported, and with the sampler always_off.
	Kept trace.TracerProvider
	// Propagator reads and writes the trace of callers.
	Propagator propagation.TextMapPropagator

	options   Options
	shutdowns []func(context.Context) error
}

// New sets tracing up by the variables of the OpenTelemetry specification. Spans are exported when an OTLP endpoint
// is named (OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) or OTEL_TRACES_EXPORTER names an exporter;
// unlike in the specification, the default is no export, so that a process without a collector logs no failures.
// The SDK itself reads the variables of sampler, limits, batching and resource. A value that is not understood is
// logged, and nothing is exported. Nothing is dialled: a missing collector shows when spans are exported.
func New(ctx context.Context, o Options) *Telemetry {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	t := &Telemetry{TracerProvider: noop.NewTracerProvider(), Propagator: propagatorFromEnv(ctx, o.Logger), options: o}
	if disabled() {
		return t
	}
	exporter := spanExporterFromEnv(ctx, o.Logger)
	if exporter == nil {
		return t
	}
	options := []sdktrace.TracerProviderOption{
		sdktrace.WithResource(o.resource(ctx)),
		sdktrace.WithSpanProcessor(sdktrace.NewBatchSpanProcessor(&reporter{SpanExporter: exporter, log: o.Logger})),
	}
	provider := sdktrace.NewTracerProvider(options...)
	t.TracerProvider, t.shutdowns = provider, append(t.shutdowns, provider.Shutdown)
	if os.Getenv(envTracesSampler) != "always_off" {
		t.Kept = sdktrace.NewTracerProvider(append(options, sdktrace.WithSampler(sdktrace.AlwaysSample()))...) // its processor is shut down above
	}
	return t
}

// Shutdown exports the queued spans and the last metrics, and ends the background work of the exporters, or gives up when ctx ends. Later
// calls do nothing. It is called from one goroutine.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	var errs []error
	for _, shutdown := range t.shutdowns {
		errs = append(errs, shutdown(ctx))
	}
	t.shutdowns = nil
	return errors.Join(errs...)
}

// Close is Shutdown within shutdownTimeout, also after the end of ctx. It logs a failure.
func (t *Telemetry) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := t.Shutdown(ctx); err != nil {
		t.options.Logger.WarnContext(ctx, "the last traces or metrics are lost", "error", err)
	}
}

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
