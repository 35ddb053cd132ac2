package bridge

import (
	"cmp"
	"context"
	"maps"
	"net"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/metadata"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const (
	// instrumentationName names the tracer.
	instrumentationName = "github.com/portcullis-mesh/portcullis/bridge"
	// maxAttribute bounds the text of a caller in a span, in bytes: names in Kubernetes have at most 253.
	maxAttribute = 256
	// rpcMethod is the only method of AdmissionService.
	rpcMethod = "Review"
)

// Phases of a review at the edge, as events of its span. An event is at the end of its phase.
const (
	phaseAuthorized = "authorized"
	phaseRead       = "read" // the body
	phaseDecoded    = "decoded"
	phaseEncoded    = "encoded" // the answer, which is then sent
)

// tracerOf is the tracer of a provider; nil when it records nothing.
func tracerOf(provider trace.TracerProvider) trace.Tracer {
	if _, off := provider.(noop.TracerProvider); off || provider == nil {
		return nil
	}
	return provider.Tracer(instrumentationName)
}

// startSpan begins the span of a review, below the API server's own if it sent one (SEMANTICS C39). Only
// callers that were let in get one. Where nothing is recorded the API server's trace leads on to the hooks all the same.
func (x *exchange) startSpan(ctx context.Context) context.Context {
	ctx = x.bridge.options.Propagator.Extract(ctx, propagation.HeaderCarrier(x.request.Header))
	if x.bridge.tracer == nil {
		x.span = trace.SpanFromContext(ctx)
		return ctx
	}
	x.spanOptions = [...]trace.SpanStartOption{x.bridge.server, trace.WithTimestamp(x.started)}
	ctx, x.span = x.bridge.tracer.Start(ctx, x.endpoint.span, x.spanOptions[:]...)
	if x.span.IsRecording() {
		x.span.SetAttributes(x.attributes()...)
	}
	return ctx
}

// attributes describe the request. Its path is not among them, since it may have a capability.
func (x *exchange) attributes() []attribute.KeyValue {
	host, _, err := net.SplitHostPort(x.request.Host)
	if err != nil {
		host = x.request.Host
	}
	attributes := []attribute.KeyValue{
		semconv.HTTPRequestMethodPost, semconv.HTTPRoute(x.route), semconv.URLScheme("https"), semconv.ServerAddress(bounded(host)),
		semconv.K8SClusterName(bounded(x.cluster)),
		attribute.String("portcullis.stage", stageName(x.stage)),
		attribute.String("portcullis.entry", bounded(x.entry.Name)),
	}
	if agent := x.request.UserAgent(); agent != "" {
		attributes = append(attributes, semconv.UserAgentOriginal(bounded(agent)))
	}
	return attributes
}

// endPhase adds the end of a phase to the span.
func (x *exchange) endPhase(phase string) {
	if x.span.IsRecording() {
		x.span.AddEvent(phase)
	}
}

// SendTrace returns a context whose calls of AdmissionService carry the trace of ctx in their metadata, as the propagator writes it.
func SendTrace(ctx context.Context, propagator propagation.TextMapPropagator) context.Context {
	carrier := propagation.MapCarrier{}
	propagator.Inject(ctx, carrier)
	var sent []string
	for key, value := range carrier {
		sent = append(sent, key, value)
	}
	return metadata.AppendToOutgoingContext(ctx, sent...)
}

// received are the metadata of a call as a propagator reads them. A key with several values has none.
type received metadata.MD

// Get implements propagation.TextMapCarrier.
func (r received) Get(key string) string {
	if values := metadata.MD(r).Get(key); len(values) == 1 {
		return values[0]
	}
	return ""
}

// Set implements propagation.TextMapCarrier. Nothing is written here.
func (received) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (r received) Keys() []string { return slices.Collect(maps.Keys(r)) }

// joinTrace returns a context in the trace of a call of AdmissionService. Metadata that have no trace are ignored.
func (s *service) joinTrace(ctx context.Context) context.Context {
	sent, _ := metadata.FromIncomingContext(ctx)
	return s.bridge.options.Propagator.Extract(ctx, received(sent))
}

// endSpan ends the span with the outcome of the review. A denial is a result; a review that was not judged is an error.
func (x *exchange) endSpan() {
	if x.span.IsRecording() {
		x.span.SetAttributes(
			attribute.String("portcullis.uid", bounded(x.uid)),
			attribute.String("portcullis.outcome", string(x.outcome)),
			semconv.HTTPRequestBodySize(len(x.body)),
			semconv.HTTPResponseStatusCode(x.code),
		)
		fail(x.span, x.outcome, x.failure)
	}
	x.span.End()
}

// fail marks the span of a review without a verdict; an empty message marks none.
func fail(span trace.Span, o review.Outcome, message string) {
	if message != "" {
		span.SetStatus(codes.Error, bounded(message))
		span.SetAttributes(semconv.ErrorTypeKey.String(string(o)))
	}
}

// startSpan begins the span of a call of AdmissionService, as exchange.startSpan does for HTTP.
func (s *service) startSpan(ctx context.Context, request *admissionv1.ReviewRequest, entry string, m *measured) (context.Context, trace.Span) {
	ctx = s.joinTrace(ctx)
	if s.bridge.tracer == nil {
		return ctx, noop.Span{}
	}
	ctx, span := s.bridge.tracer.Start(ctx, admissionv1.AdmissionService_ServiceDesc.ServiceName+"/"+rpcMethod,
		s.bridge.server, trace.WithTimestamp(m.started))
	m.span = span.SpanContext()
	if span.IsRecording() {
		span.AddEvent(phaseAuthorized)
		span.SetAttributes(
			semconv.RPCSystemGRPC, semconv.RPCService(admissionv1.AdmissionService_ServiceDesc.ServiceName), semconv.RPCMethod(rpcMethod),
			semconv.K8SClusterName(bounded(m.cluster)),
			attribute.String("portcullis.stage", stageName(m.stage)),
			attribute.String("portcullis.entry", bounded(entry)),
			attribute.String("portcullis.uid", bounded(request.GetRequest().GetUid())),
		)
		if agent := metadata.ValueFromIncomingContext(ctx, "user-agent"); len(agent) == 1 {
			span.SetAttributes(semconv.UserAgentOriginal(bounded(agent[0])))
		}
	}
	return ctx, span
}

// endSpan ends the span of a call of AdmissionService. The answer may be a denial for a reason of the bridge's own.
func (s *service) endSpan(span trace.Span, m *measured, response *admissionv1.ReviewResponse, refused *refusal) {
	if span.IsRecording() {
		code, message, o := 0, "", m.outcome
		switch {
		case refused != nil:
			code, message, o = int(grpcCode(refused.code)), refused.message, refused.outcome
		case o == review.OutcomeFailed || o == review.OutcomeRefused:
			message = cmp.Or(response.GetResponse().GetStatus().GetMessage(), string(o))
		}
		span.SetAttributes(attribute.String("portcullis.outcome", string(o)), semconv.RPCGRPCStatusCodeKey.Int(code))
		fail(span, o, message)
	}
	span.End()
}

// bounded cuts a text to maxAttribute bytes.
func bounded(text string) string {
	if len(text) <= maxAttribute {
		return text
	}
	return strings.ToValidUTF8(text[:maxAttribute], "")
}
