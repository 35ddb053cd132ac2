package review

import (
	"context"
	"crypto/rand"
	"log/slog"
	"os"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/telemetry"
)

// traced is the trace of a command.
type traced struct {
	id        trace.TraceID
	span      trace.Span
	telemetry *telemetry.Telemetry
}

// startTrace begins the trace of a command: it continues TRACEPARENT if that is set, and otherwise begins a new trace. The span of the
// command, which has the cluster and the uid of the request, is exported if the variables of OpenTelemetry name an exporter. Without an
// exporter a new trace is sampled, so that the mesh records it. Calls of gRPC with the returned context belong to it.
func startTrace(ctx context.Context, log *slog.Logger, request *admissionv1.AdmissionRequest) (context.Context, traced) {
	t := traced{telemetry: telemetry.New(ctx, telemetry.Options{ServiceName: "portcullis-review", ServiceVersion: cli.Version(), Logger: log})}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
		"traceparent": os.Getenv("TRACEPARENT"), "tracestate": os.Getenv("TRACESTATE"),
	})
	ctx, t.span = t.telemetry.TracerProvider.Tracer("github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/review").Start(ctx, "portcullis review",
		trace.WithAttributes(semconv.K8SClusterName(request.GetCluster()), attribute.String("portcullis.uid", request.GetUid())))
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, newTrace())
	}
	t.id = trace.SpanContextFromContext(ctx).TraceID()
	carrier := propagation.MapCarrier{}
	t.telemetry.Propagator.Inject(ctx, carrier)
	return metadata.NewOutgoingContext(ctx, metadata.New(carrier)), t
}

// newTrace is a new trace, which is sampled.
func newTrace() trace.SpanContext {
	config := trace.SpanContextConfig{TraceFlags: trace.FlagsSampled}
	_, _ = rand.Read(config.TraceID[:]) // never fails
	_, _ = rand.Read(config.SpanID[:])
	return trace.NewSpanContext(config)
}

// end exports the span, with the failure; an empty failure means success.
func (t traced) end(ctx context.Context, failure string) error {
	if failure != "" {
		t.span.SetStatus(codes.Error, failure)
	}
	t.span.End()
	return t.telemetry.Shutdown(ctx)
}
