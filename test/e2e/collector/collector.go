// Package collector is an OpenTelemetry collector that keeps the spans it
// receives, for tests that look at traces: OTLP over gRPC, without TLS. It can
// send them on to a trace viewer, where people look at them.
package collector

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Span has the kept fields of a span.
type Span struct {
	// Service is the service.name of the process that it comes from.
	Service string
	// Name is the span's.
	Name string
	// ID and Parent are span ids in hexadecimal; Parent is empty for a root.
	ID, Parent string
	// Cluster is the attribute k8s.cluster.name.
	Cluster string
	// Events are the names of its events, in the order of time.
	Events []string
}

// Collector is a running collector. Its methods are safe for concurrent use.
type Collector struct {
	collectorv1.UnimplementedTraceServiceServer

	server   *grpc.Server
	listener net.Listener
	served   chan error
	viewer   *grpc.ClientConn // nil without one

	mu     sync.Mutex
	traces map[string][]Span // guarded by mu
}

// Start starts a collector on a free port of 127.0.0.1. It sends all that it
// receives on to viewer, the host:port of another receiver of OTLP over gRPC,
// unless that is empty. Whoever started it calls Stop once.
func Start(viewer string) (*Collector, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for spans: %w", err)
	}
	c := &Collector{server: grpc.NewServer(), listener: listener, served: make(chan error, 1), traces: map[string][]Span{}}
	if viewer != "" {
		c.viewer, err = grpc.NewClient(viewer, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("viewer %q: %w", viewer, err), listener.Close())
		}
	}
	collectorv1.RegisterTraceServiceServer(c.server, c)
	go func() { c.served <- c.server.Serve(listener) }()
	return c, nil
}

// Stop ends the collector.
func (c *Collector) Stop() error {
	c.server.Stop()
	err := <-c.served
	if c.viewer != nil {
		err = errors.Join(err, c.viewer.Close())
	}
	return err
}

// Endpoint is its host:port.
func (c *Collector) Endpoint() string { return c.listener.Addr().String() }

// Trace is the spans of a trace that have arrived so far, by its id in
// hexadecimal. Processes export their spans a little after they have ended.
func (c *Collector) Trace(id string) []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.traces[id]...)
}

// Export implements the OTLP service. The collector answers as the viewer does:
// an exporter sends spans again that the viewer could not take.
func (c *Collector) Export(ctx context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	if c.viewer != nil {
		if _, err := collectorv1.NewTraceServiceClient(c.viewer).Export(ctx, r); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		service := valueOf(resource.GetResource().GetAttributes(), "service.name")
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				trace := hex.EncodeToString(s.GetTraceId())
				c.traces[trace] = append(c.traces[trace], Span{
					Service: service, Name: s.GetName(),
					ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
					Cluster: valueOf(s.GetAttributes(), "k8s.cluster.name"), Events: eventsOf(s),
				})
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func valueOf(attributes []*commonv1.KeyValue, key string) string {
	for _, a := range attributes {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

func eventsOf(s *tracev1.Span) []string {
	var names []string
	for _, e := range s.GetEvents() {
		names = append(names, e.GetName())
	}
	return names
}
