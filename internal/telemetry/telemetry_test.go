package telemetry_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"

	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/telemetry"
)

// environment sets the variables, and unsets all others of OpenTelemetry.
func environment(t *testing.T, variables map[string]string) {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range variables {
		t.Setenv(name, value)
	}
}

// start makes a Telemetry that is shut down before the test ends, by the test or here.
func start(t *testing.T, o telemetry.Options) *telemetry.Telemetry {
	t.Helper()
	tel := telemetry.New(t.Context(), o)
	t.Cleanup(func() { shutdown(t, tel) })
	return tel
}

func shutdown(t *testing.T, tel *telemetry.Telemetry) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := tel.Shutdown(ctx); err != nil {
		t.Errorf("shutting down: %v", err)
	}
}

func TestSpansReachAnOTLPCollector(t *testing.T) {
	tests := map[string]struct {
		collector func(*testing.T) (*collector, string)
		variables func(endpoint string) map[string]string
	}{
		"over gRPC": {
			collector: grpcCollector,
			variables: func(endpoint string) map[string]string {
				return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
			},
		},
		"over HTTP, which is the default": {
			collector: httpCollector,
			variables: func(endpoint string) map[string]string {
				return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
			},
		},
		"by the endpoint and protocol for traces alone": {
			collector: grpcCollector,
			variables: func(endpoint string) map[string]string {
				return map[string]string{
					"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": endpoint,
					"OTEL_EXPORTER_OTLP_PROTOCOL":        "http/protobuf",
					"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc",
				}
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, endpoint := tt.collector(t)
			environment(t, tt.variables(endpoint))
			tel := start(t, telemetry.Options{})
			record(t.Context(), tel.TracerProvider, "portcullis.review")
			shutdown(t, tel)
			if diff := cmp.Diff([]string{"portcullis.review"}, c.spans()); diff != "" {
				t.Errorf("spans at the collector (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResource(t *testing.T) {
	tests := map[string]struct {
		variables map[string]string
		want      map[string]string
	}{
		"names the program without any variable": {
			want: map[string]string{"service.name": "portcullis", "service.version": "v1", "service.instance.id": "a"},
		},
		"is what the environment says": {
			variables: map[string]string{
				"OTEL_SERVICE_NAME": "admission", "OTEL_RESOURCE_ATTRIBUTES": "service.version=v2,k8s.pod.name=p-0",
			},
			want: map[string]string{
				"service.name": "admission", "service.version": "v2", "service.instance.id": "a", "k8s.pod.name": "p-0",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, endpoint := httpCollector(t)
			environment(t, tt.variables)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
			tel := start(t, telemetry.Options{ServiceVersion: "v1", ServiceInstance: "a"})
			record(t.Context(), tel.TracerProvider, "s")
			shutdown(t, tel)
			if diff := cmp.Diff(tt.want, c.resource(t)); diff != "" {
				t.Errorf("resource (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNothingIsRecorded(t *testing.T) {
	tests := map[string]map[string]string{
		"without any variable":                  {},
		"with the exporter none":                {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
		"with the SDK disabled":                 {"OTEL_SDK_DISABLED": "True", "OTEL_TRACES_EXPORTER": "console"},
		"with the sampler that never samples":   {"OTEL_TRACES_EXPORTER": "console", "OTEL_TRACES_SAMPLER": "always_off"},
		"with an exporter that is not built in": {"OTEL_TRACES_EXPORTER": "zipkin"},
		"with a protocol that is not built in":  {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
	}
	for name, variables := range tests {
		t.Run(name, func(t *testing.T) {
			environment(t, variables)
			tel := start(t, telemetry.Options{})
			_, span := tel.TracerProvider.Tracer("test").Start(t.Context(), "s")
			defer span.End()
			if span.IsRecording() {
				t.Error("a span records")
			}
		})
	}
}

func TestKeptSpansAreExportedWhateverTheSamplerSays(t *testing.T) {
	for sampler, want := range map[string][]string{
		"parentbased_traceidratio": {"kept"}, "traceidratio": {"kept"}, "parentbased_always_off": {"kept"}, "always_off": nil,
	} {
		t.Run(sampler, func(t *testing.T) {
			c, endpoint := httpCollector(t)
			environment(t, map[string]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": "0",
			})
			tel := start(t, telemetry.Options{})
			record(t.Context(), tel.TracerProvider, "dropped")
			if tel.Kept != nil {
				record(t.Context(), tel.Kept, "kept")
			}
			shutdown(t, tel)
			if diff := cmp.Diff(want, c.spans()); diff != "" {
				t.Errorf("spans at the collector (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheTraceOfACallerIsPassedOnWithoutExport(t *testing.T) {
	environment(t, nil)
	tel := start(t, telemetry.Options{})
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	ctx := propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{"traceparent": parent})
	ctx, span := tel.TracerProvider.Tracer("test").Start(ctx, "s")
	defer span.End()
	out := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, out)
	if out["traceparent"] != parent {
		t.Errorf("traceparent %q, want the caller's %q", out["traceparent"], parent)
	}
}

func TestVariablesThatAreNotUnderstoodAreNamedInTheLog(t *testing.T) {
	for want, variables := range map[string]map[string]string{
		"OTEL_TRACES_EXPORTER is otlp, console or none":           {"OTEL_TRACES_EXPORTER": "zipkin"},
		"OTEL_EXPORTER_OTLP_PROTOCOL is grpc or http/protobuf":    {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
		"OTEL_RESOURCE_ATTRIBUTES":                                {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_RESOURCE_ATTRIBUTES": "no equals sign"},
		"OTEL_METRICS_EXPORTER is otlp, console, prometheus":      {"OTEL_METRICS_EXPORTER": "statsd"},
		"OTEL_PROPAGATORS is not understood as a whole; it lists": {"OTEL_PROPAGATORS": "b3,carrier-pigeon"},
	} {
		t.Run(want, func(t *testing.T) {
			environment(t, variables)
			var log bytes.Buffer
			tel := start(t, telemetry.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			tel.ExportMetrics(t.Context(), prometheus.NewRegistry())
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not say %s:\n%s", want, &log)
			}
		})
	}
}

func TestPropagatorsAreThoseOfTheEnvironment(t *testing.T) {
	ctx := propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{
		"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	})
	member, err := baggage.NewMember("user", "alice")
	if err != nil {
		t.Fatal(err)
	}
	bag, err := baggage.New(member)
	if err != nil {
		t.Fatal(err)
	}
	ctx = baggage.ContextWithBaggage(ctx, bag)
	for variable, want := range map[string]string{
		"":                       "traceparent",
		"tracecontext, baggage":  "baggage traceparent",
		"b3":                     "b3",
		"b3multi,tracecontext":   "traceparent x-b3-sampled x-b3-spanid x-b3-traceid",
		"carrier-pigeon":         "traceparent",
		"jaeger":                 "uber-trace-id",
		"none":                   "",
		"b3,carrier-pigeon,none": "",
	} {
		t.Run(variable, func(t *testing.T) {
			environment(t, map[string]string{"OTEL_PROPAGATORS": variable})
			sent := propagation.MapCarrier{}
			start(t, telemetry.Options{}).Propagator.Inject(ctx, sent)
			keys := sent.Keys()
			slices.Sort(keys)
			if got := strings.ToLower(strings.Join(keys, " ")); got != want {
				t.Errorf("headers %q, want %q", got, want)
			}
		})
	}
}

func TestACollectorThatIsDownNeitherBlocksNorFails(t *testing.T) {
	address, err := citest.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "http://" + address
	environment(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_BSP_EXPORT_TIMEOUT": "100",
	})
	var log bytes.Buffer
	tel := start(t, telemetry.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	record(t.Context(), tel.TracerProvider, "lost")
	shutdown(t, tel)
	if !strings.Contains(log.String(), "traces are not exported") {
		t.Errorf("the log does not say that spans are lost:\n%s", &log)
	}
}

// TestTheAnswerOfACollectorIsBounded has a collector that answers without an end: the exporter reads 4 MiB of it, and the kernel buffers some more.
func TestTheAnswerOfACollectorIsBounded(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusInternalServerError} {
		sent := make(chan int, 1)
		endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			total, part := 0, make([]byte, 1<<20)
			for total < 1<<30 {
				n, err := w.Write(part)
				if total += n; err != nil {
					break
				}
			}
			select {
			case sent <- total:
			default:
			}
		}))
		t.Cleanup(endless.Close)
		environment(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endless.URL})
		var log bytes.Buffer
		tel := start(t, telemetry.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		record(t.Context(), tel.TracerProvider, "lost")
		shutdown(t, tel)
		if n := <-sent; n > 64<<20 {
			t.Errorf("status %d: %d bytes were read", status, n)
		}
		if !strings.Contains(log.String(), "traces are not exported") {
			t.Errorf("status %d: the log does not say that spans are lost:\n%s", status, &log)
		}
	}
}

func TestNothingGlobalIsSet(t *testing.T) {
	provider, propagator := otel.GetTracerProvider(), otel.GetTextMapPropagator()
	environment(t, map[string]string{"OTEL_TRACES_EXPORTER": "console"})
	start(t, telemetry.Options{})
	if otel.GetTracerProvider() != provider || otel.GetTextMapPropagator() != propagator {
		t.Error("a global of OpenTelemetry was set")
	}
}

func TestShutdownMayBeCalledAgain(t *testing.T) {
	environment(t, map[string]string{"OTEL_TRACES_EXPORTER": "otlp"})
	tel := start(t, telemetry.Options{})
	shutdown(t, tel)
	shutdown(t, tel)
}
