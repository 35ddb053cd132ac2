package telemetry

import (
	"context"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	prometheusbridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// ExportMetrics exports the metrics of a registry until Shutdown, as OTEL_METRICS_EXPORTER and the other variables of OpenTelemetry say. Without
// that variable it exports nothing, unlike in the specification: the admin port serves the same metrics. It is called at most once in a
// process, before Shutdown: autoexport has one registry for all. From then on the errors of OpenTelemetry's background work are logged.
func (t *Telemetry) ExportMetrics(ctx context.Context, gatherer prometheus.Gatherer) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		t.options.Logger.Warn("OpenTelemetry reports an error; check the OTEL_* variables and the collector", "error", err)
	}))
	if os.Getenv(envMetricsExporter) == "" || disabled() {
		return
	}
	autoexport.WithFallbackMetricProducer(func(context.Context) (sdkmetric.Producer, error) {
		return prometheusbridge.NewMetricProducer(prometheusbridge.WithGatherer(withTraceIDs(gatherer))), nil
	})
	reader, err := autoexport.NewMetricReader(ctx)
	if err != nil {
		t.options.Logger.WarnContext(ctx, "metrics are not exported: a variable is not understood; "+
			"OTEL_METRICS_EXPORTER is otlp, console, prometheus or none, OTEL_EXPORTER_OTLP_PROTOCOL is grpc or http/protobuf",
			"error", err, envMetricsExporter, os.Getenv(envMetricsExporter))
		return
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(t.options.resource(ctx)))
	t.shutdowns = append(t.shutdowns, provider.Shutdown)
}
