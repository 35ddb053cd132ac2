package bridge

import (
	"context"
	"crypto/tls"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/contrib/propagators/autoprop"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// phasesOf are the names of the events of a span, which are in the order of time.
func phasesOf(s sdktrace.ReadOnlySpan) string {
	var names []string
	last := s.StartTime()
	for _, e := range s.Events() {
		if e.Time.Before(last) || e.Time.After(s.EndTime()) {
			names = append(names, "not in time:")
		}
		names, last = append(names, e.Name), e.Time
	}
	return strings.Join(names, " ")
}

func TestACallOfAdmissionServiceHasASpan(t *testing.T) {
	for name, test := range map[string]struct {
		reviewer reviewerFunc
		request  func(*admissionv1.ReviewRequest)
		outcome  string
		code     int64
		status   sdktrace.Status
	}{
		"that is allowed": {reviewer: allow, outcome: "allowed"},
		"that is denied": {
			reviewer: func(_ context.Context, r *review.Request) (review.Answer, error) {
				return review.Answer{Response: &admissionv1.AdmissionResponse{Uid: r.Admission.GetUid()}}, nil
			},
			outcome: "denied",
		},
		"that has failed": {
			reviewer: func(_ context.Context, r *review.Request) (review.Answer, error) {
				return review.Answer{Failed: true, Response: &admissionv1.AdmissionResponse{
					Uid: r.Admission.GetUid(), Status: &admissionv1.Status{Message: "no verdict"},
				}}, nil
			},
			outcome: "failed", status: sdktrace.Status{Code: codes.Error, Description: "no verdict"},
		},
		"that nothing may judge": {
			reviewer: func(context.Context, *review.Request) (review.Answer, error) {
				return review.Answer{}, context.DeadlineExceeded
			},
			outcome: "refused", code: 14,
			status: sdktrace.Status{Code: codes.Error, Description: "portcullis: nothing may judge this review now " +
				"(the configuration is stale: the log and /readyz of the dispatcher say why): try again"},
		},
		"that panics": {
			reviewer: func(context.Context, *review.Request) (review.Answer, error) { panic("boom") },
			outcome:  "failed", status: sdktrace.Status{Code: codes.Error, Description: "failed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := tracetest.NewSpanRecorder()
			var inside trace.SpanContext
			options := testOptions(func(ctx context.Context, r *review.Request) (review.Answer, error) {
				inside = trace.SpanContextFromContext(ctx)
				return test.reviewer(ctx, r)
			})
			options.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
			client := serveGRPC(t, newBridge(t, options))("kube-apiserver")
			ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+parentTrace+"-"+parentSpan+"-01")
			_, _ = client.Review(ctx, grpcReview())

			span := ended(t, recorder)[0]
			if span.Name() != "portcullis.admission.v1.AdmissionService/Review" || span.SpanKind() != trace.SpanKindServer {
				t.Errorf("span %q of kind %v", span.Name(), span.SpanKind())
			}
			if span.Parent().TraceID().String() != parentTrace || span.Parent().SpanID().String() != parentSpan {
				t.Errorf("parent = %v, want the caller's", span.Parent())
			}
			if inside.SpanID() != span.SpanContext().SpanID() {
				t.Errorf("the review runs under %v, want %v", inside, span.SpanContext())
			}
			if span.Status() != test.status {
				t.Errorf("status = %v, want %v", span.Status(), test.status)
			}
			got := map[attribute.Key]any{}
			for _, a := range span.Attributes() {
				got[a.Key] = a.Value.AsInterface()
			}
			if agent, _ := got["user_agent.original"].(string); !strings.HasPrefix(agent, "grpc-go/") {
				t.Errorf("user agent %q", agent)
			}
			delete(got, "user_agent.original")
			want := map[attribute.Key]any{
				"rpc.system": "grpc", "rpc.service": "portcullis.admission.v1.AdmissionService", "rpc.method": "Review",
				"rpc.grpc.status_code": test.code, "k8s.cluster.name": "prod-1", "portcullis.stage": "validate", "portcullis.uid": "u1",
				"portcullis.entry": "closed", "portcullis.outcome": test.outcome,
			}
			if test.status.Code == codes.Error {
				want["error.type"] = test.outcome
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTheRouteOfASpanHasNoCapability: collectors keep spans.
func TestTheRouteOfASpanHasNoCapability(t *testing.T) {
	good, recorder := identity.NewCapability(), tracetest.NewSpanRecorder()
	options := capable(allow, good)
	options.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	conn := serve(t, options).dialAs(t, "")
	conn.send(t, post(shown("prod-1", good.Reveal(), "mutate/fail-closed/10.AAAA"), reviewOf("u1", 0)))
	conn.receive(t)
	span, route := ended(t, recorder)[0], "/v1/clusters/{cluster}/capability/{capability}/mutate/{entry}/{plan}"
	if span.Name() != "POST "+route || !slices.Contains(span.Attributes(), attribute.String("http.route", route)) {
		t.Errorf("span %s with %v", span.Name(), span.Attributes())
	}
}

func TestTheTraceOfACallerIsReadAsThePropagatorSays(t *testing.T) {
	b3, err := autoprop.TextMapPropagator("b3")
	if err != nil {
		t.Fatal(err)
	}
	var inside trace.SpanContext
	options := testOptions(func(ctx context.Context, r *review.Request) (review.Answer, error) {
		inside = trace.SpanContextFromContext(ctx)
		return allow(ctx, r)
	})
	options.Propagator = b3
	b := newBridge(t, options)
	judged := func(edge string) {
		t.Helper()
		if inside.TraceID().String() != parentTrace || inside.SpanID().String() != parentSpan {
			t.Errorf("%s: the review runs under %v, want the caller's span", edge, inside)
		}
		inside = trace.SpanContext{}
	}
	conn := serveWith(t, b, tls.VerifyClientCertIfGiven, ServerOptions{}).dial(t)
	conn.send(t, post(validatePath, reviewOf("u1", 0), "B3: "+parentTrace+"-"+parentSpan+"-1"))
	conn.receive(t)
	judged("JSON")
	client, caller := serveGRPC(t, b)("kube-apiserver"), propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{
		"traceparent": "00-" + parentTrace + "-" + parentSpan + "-01",
	})
	if _, err := client.Review(SendTrace(caller, b3), grpcReview()); err != nil {
		t.Fatal(err)
	}
	judged("gRPC")
	if _, err := client.Review(SendTrace(caller, propagation.TraceContext{}), grpcReview()); err != nil || inside.IsValid() {
		t.Errorf("a traceparent is read: %v, error %v", inside, err)
	}
}
