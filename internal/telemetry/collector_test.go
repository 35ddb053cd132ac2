package telemetry_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/trace"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector is an OTLP receiver in memory that keeps the received data.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer

	mu       sync.Mutex
	received []*tracev1.ResourceSpans
}

func (c *collector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = append(c.received, r.GetResourceSpans()...)
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// spans are the names of the spans so far.
func (c *collector) spans() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for _, resource := range c.received {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				names = append(names, span.GetName())
			}
		}
	}
	return names
}

// resource is the resource of the first span.
func (c *collector) resource(t *testing.T) map[string]string {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.received) == 0 {
		t.Fatal("the collector got nothing")
	}
	attributes := map[string]string{}
	for _, a := range c.received[0].GetResource().GetAttributes() {
		if !strings.HasPrefix(a.GetKey(), "telemetry.sdk.") {
			attributes[a.GetKey()] = a.GetValue().GetStringValue()
		}
	}
	return attributes
}

// grpcCollector serves OTLP over gRPC and returns its endpoint.
func grpcCollector(t *testing.T) (*collector, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, server, served := &collector{}, grpc.NewServer(), make(chan error, 1)
	collectorv1.RegisterTraceServiceServer(server, c)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c, "http://" + listener.Addr().String()
}

// httpCollector serves OTLP as protobuf over HTTP and returns its endpoint.
func httpCollector(t *testing.T) (*collector, string) {
	t.Helper()
	c := &collector{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Content-Type"); r.URL.Path != "/v1/traces" || got != "application/x-protobuf" {
			http.Error(w, "not OTLP", http.StatusBadRequest)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		request := &collectorv1.ExportTraceServiceRequest{}
		if err := proto.Unmarshal(body, request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if _, err := c.Export(r.Context(), request); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	return c, server.URL
}

// record makes one span.
func record(ctx context.Context, provider trace.TracerProvider, name string) {
	_, span := provider.Tracer("test").Start(ctx, name)
	span.End()
}
