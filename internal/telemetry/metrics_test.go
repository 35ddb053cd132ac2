package telemetry_test

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	metricsv1 "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/internal/telemetry"
)

// metricsCollector is an OTLP receiver in memory that keeps the metrics that it is sent.
type metricsCollector struct {
	collectorv1.UnimplementedMetricsServiceServer

	mu       sync.Mutex
	received []*metricsv1.ResourceMetrics
}

func (c *metricsCollector) Export(
	_ context.Context, r *collectorv1.ExportMetricsServiceRequest,
) (*collectorv1.ExportMetricsServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = append(c.received, r.GetResourceMetrics()...)
	return &collectorv1.ExportMetricsServiceResponse{}, nil
}

// names are the metrics so far, each once, and the service.name of them all.
func (c *metricsCollector) names() (names []string, service string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range c.received {
		for _, a := range resource.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range resource.GetScopeMetrics() {
			for _, m := range scope.GetMetrics() {
				names = append(names, m.GetName())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), service
}

// exemplars are the traces of the exemplars so far.
func (c *metricsCollector) exemplars() (traces []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range c.received {
		for _, scope := range resource.GetScopeMetrics() {
			for _, m := range scope.GetMetrics() {
				for _, p := range m.GetHistogram().GetDataPoints() {
					for _, e := range p.GetExemplars() {
						traces = append(traces, hex.EncodeToString(e.GetTraceId()))
					}
				}
			}
		}
	}
	return traces
}

func (c *metricsCollector) overGRPC(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, served := grpc.NewServer(), make(chan error, 1)
	collectorv1.RegisterMetricsServiceServer(server, c)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return "http://" + listener.Addr().String()
}

func (c *metricsCollector) overHTTP(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		request := &collectorv1.ExportMetricsServiceRequest{}
		if err != nil || r.URL.Path != "/v1/metrics" || proto.Unmarshal(body, request) != nil {
			http.Error(w, "not OTLP", http.StatusBadRequest)
			return
		}
		_, _ = c.Export(r.Context(), request)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// counted is a registry with one metric of each kind that the mesh has.
func counted() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "reviews_total", Help: "h"})
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "review_seconds", Help: "h", Buckets: []float64{1}})
	native := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "phase_seconds", Help: "h", NativeHistogramBucketFactor: 1.1})
	registry.MustRegister(counter, histogram, native)
	counter.Inc()
	for _, o := range []prometheus.Observer{histogram, native} {
		o.(prometheus.ExemplarObserver).ObserveWithExemplar(2, prometheus.Labels{"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736"})
	}
	return registry
}

func TestMetricsReachAnOTLPCollector(t *testing.T) {
	for protocol, serve := range map[string]func(*metricsCollector, *testing.T) string{
		"grpc": (*metricsCollector).overGRPC, "http/protobuf": (*metricsCollector).overHTTP,
	} {
		t.Run(protocol, func(t *testing.T) {
			var c metricsCollector
			environment(t, map[string]string{
				"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": serve(&c, t), "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
				"OTEL_TRACES_EXPORTER": "none", "OTEL_SERVICE_NAME": "admission",
			})
			tel := start(t, telemetry.Options{})
			tel.ExportMetrics(t.Context(), counted())
			shutdown(t, tel) // exports the pending data
			names, service := c.names()
			if !slices.Equal(names, []string{"phase_seconds", "review_seconds", "reviews_total"}) || service != "admission" {
				t.Errorf("metrics %v of %s", names, service)
			}
			// The bridge leaves out the exemplars of native histograms.
			if got := c.exemplars(); !slices.Equal(got, []string{"4bf92f3577b34da6a3ce929d0e0e4736"}) {
				t.Errorf("the exemplars have the traces %v", got)
			}
		})
	}
}

func TestMetricsAreNotExportedUnlessTheEnvironmentSaysSo(t *testing.T) {
	for name, variables := range map[string]map[string]string{
		"an endpoint, which may be one for traces alone": {},
		"the exporter none":       {"OTEL_METRICS_EXPORTER": "none"},
		"the SDK switched off":    {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"},
		"an exporter of no name":  {"OTEL_METRICS_EXPORTER": "statsd"},
		"a protocol without name": {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
	} {
		t.Run(name, func(t *testing.T) {
			var c metricsCollector
			variables["OTEL_EXPORTER_OTLP_ENDPOINT"], variables["OTEL_TRACES_EXPORTER"] = c.overHTTP(t), "none"
			environment(t, variables)
			tel := start(t, telemetry.Options{})
			tel.ExportMetrics(t.Context(), counted())
			shutdown(t, tel)
			if names, _ := c.names(); len(names) > 0 {
				t.Errorf("metrics %v", names)
			}
		})
	}
}
