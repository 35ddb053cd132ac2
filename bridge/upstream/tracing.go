package upstream

import (
	"context"
	"net"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const (
	// instrumentationName names the tracer.
	instrumentationName = "github.com/portcullis-mesh/portcullis/bridge/upstream"
	// phaseQueued is an event of the caller's span: the end of a wait for a dispatcher.
	phaseQueued = "queued"
	// rpcMethod is the only method of AdmissionService.
	rpcMethod = "Review"
)

// startSpan begins the span of one attempt to have a dispatcher judge a review.
func (u *Reviewer) startSpan(ctx context.Context, request *admissionv1.AdmissionRequest) (context.Context, trace.Span) {
	ctx, span := u.tracer.Start(ctx, admissionv1.AdmissionService_ServiceDesc.ServiceName+"/"+rpcMethod, trace.WithSpanKind(trace.SpanKindClient))
	if span.IsRecording() {
		span.SetAttributes(
			semconv.RPCSystemGRPC, semconv.RPCService(admissionv1.AdmissionService_ServiceDesc.ServiceName), semconv.RPCMethod(rpcMethod),
			semconv.K8SClusterName(request.GetCluster()), attribute.String("portcullis.uid", request.GetUid()),
		)
	}
	return ctx, span
}

// endSpan ends it. An attempt without an answer is an error; a denial is an answer.
func endSpan(span trace.Span, sentTo *peer.Peer, err error) {
	if span.IsRecording() {
		code := status.Code(err)
		span.SetAttributes(semconv.RPCGRPCStatusCodeKey.Int(int(code)))
		if sentTo.Addr != nil {
			if host, port, err := net.SplitHostPort(sentTo.Addr.String()); err == nil {
				number, _ := strconv.Atoi(port)
				span.SetAttributes(semconv.ServerAddress(host), semconv.ServerPort(number))
			}
		}
		if err != nil {
			span.SetStatus(codes.Error, status.Convert(err).Message())
			span.SetAttributes(semconv.ErrorTypeKey.String(code.String()))
		}
	}
	span.End()
}
