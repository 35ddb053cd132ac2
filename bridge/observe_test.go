package bridge

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const (
	parentTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	parentSpan  = "00f067aa0ba902b7"
	traceparent = "Traceparent: 00-" + parentTrace + "-" + parentSpan + "-01"
)

func TestTheSpanJoinsTheCallersTrace(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	var inside trace.SpanContext
	options := testOptions(func(ctx context.Context, r *review.Request) (review.Answer, error) {
		inside = trace.SpanContextFromContext(ctx)
		return allow(ctx, r)
	})
	options.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	e := serve(t, options)
	conn := e.dial(t)
	conn.send(t, post(validatePath+"/"+strings.Repeat("e", 1000), reviewOf("u1", 0), traceparent, "Tracestate: a=b", "User-Agent: "+strings.Repeat("a", 1000)))
	conn.receive(t)

	spans := ended(t, recorder)
	span := spans[0]
	if span.Name() != "POST /v1/clusters/{cluster}/validate/{entry}" || span.SpanKind() != trace.SpanKindServer {
		t.Errorf("span %q of kind %v", span.Name(), span.SpanKind())
	}
	if span.Parent().TraceID().String() != parentTrace || span.Parent().SpanID().String() != parentSpan || span.SpanContext().TraceState().String() != "a=b" {
		t.Errorf("parent = %v, want the caller's", span.Parent())
	}
	if !inside.Equal(span.SpanContext()) {
		t.Errorf("the review runs under %v, want %v", inside, span.SpanContext())
	}
	want := map[attribute.Key]string{
		"http.request.method": "POST", "http.route": "/v1/clusters/{cluster}/validate/{entry}", "url.scheme": "https", "server.address": "bridge",
		"user_agent.original": strings.Repeat("a", maxAttribute),
		"k8s.cluster.name":    "prod-1", "portcullis.stage": "validate", "portcullis.uid": "u1", "portcullis.outcome": "allowed",
		"http.response.status_code": "200", "portcullis.entry": strings.Repeat("e", maxAttribute),
	}
	for _, attr := range span.Attributes() {
		if value, known := want[attr.Key]; known && attr.Value.Emit() != value {
			t.Errorf("%s = %q, want %q", attr.Key, attr.Value.Emit(), value)
		}
		delete(want, attr.Key)
	}
	if len(want) != 0 {
		t.Errorf("attributes missing: %v", want)
	}
	if span.Status().Code != codes.Unset {
		t.Errorf("status = %v, want none for an answer", span.Status())
	}
	if got := phasesOf(span); got != "authorized read decoded encoded" {
		t.Errorf("phases = %s", got)
	}
}

// The hooks' own traces join the caller's even where the bridge records nothing.
func TestTheCallersTraceGoesOnWhereNothingIsRecorded(t *testing.T) {
	for name, provider := range map[string]trace.TracerProvider{"without a provider": nil, "with one that is off": noop.NewTracerProvider()} {
		t.Run(name, func(t *testing.T) {
			var inside trace.SpanContext
			options := testOptions(func(ctx context.Context, r *review.Request) (review.Answer, error) {
				inside = trace.SpanContextFromContext(ctx)
				return allow(ctx, r)
			})
			options.TracerProvider = provider
			e := serve(t, options)
			conn := e.dial(t)
			conn.send(t, post(validatePath, reviewOf("u1", 0), traceparent, "Tracestate: a=b"))
			conn.receive(t)
			if inside.TraceID().String() != parentTrace || inside.SpanID().String() != parentSpan || inside.TraceState().String() != "a=b" {
				t.Errorf("the review runs under %v, want the caller's span", inside)
			}
			conn.send(t, post(validatePath, reviewOf("u1", 0)))
			conn.receive(t)
			if inside.IsValid() {
				t.Errorf("a review of a caller without a trace runs under %v", inside)
			}
		})
	}
}

// A denial is a result; a review that is refused without a verdict is an error of the mesh.
func TestSpansTellAFailureFromADenial(t *testing.T) {
	for name, tt := range map[string]struct {
		failed  bool
		outcome string
		status  sdktrace.Status
	}{
		"a denial":  {false, "denied", sdktrace.Status{}},
		"a failure": {true, "failed", sdktrace.Status{Code: codes.Error, Description: "because"}},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := tracetest.NewSpanRecorder()
			options := testOptions(func(_ context.Context, r *review.Request) (review.Answer, error) {
				return review.Answer{Failed: tt.failed, Response: &admissionv1.AdmissionResponse{
					Uid: r.Admission.GetUid(), Status: &admissionv1.Status{Code: 500, Message: "because"},
				}}, nil
			})
			options.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
			e := serve(t, options)
			ask(t, e.client(t), e.url(validatePath), reviewOf("u1", 0))
			span := ended(t, recorder)[0]
			if span.Status() != tt.status {
				t.Errorf("status = %v, want %v", span.Status(), tt.status)
			}
			if want := attribute.String("portcullis.outcome", tt.outcome); !slices.Contains(span.Attributes(), want) {
				t.Errorf("attributes = %v, want %v among them", span.Attributes(), want)
			}
		})
	}
}

func TestSpansOfRefusals(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	options := testOptions(allow)
	options.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	e := serve(t, options)
	client := e.client(t)
	ask(t, client, e.url("/v1/clusters/prod-9/validate"), reviewOf("u1", 0)) // not let in: no span
	ask(t, client, e.url(validatePath), "no review")
	spans := ended(t, recorder)
	if spans[0].Status().Code != codes.Error || !strings.Contains(spans[0].Status().Description, "not a JSON object") {
		t.Errorf("status = %v, want an error with the reason", spans[0].Status())
	}
}

// ended waits for the only span: it ends after the answer was sent.
func ended(t *testing.T, recorder *tracetest.SpanRecorder) []sdktrace.ReadOnlySpan {
	t.Helper()
	eventually(t, "the span ends", func() bool { return len(recorder.Ended()) > 0 })
	if got := len(recorder.Ended()); got != 1 {
		t.Fatalf("%d spans ended, want 1", got)
	}
	return recorder.Ended()
}

func TestAttributesStayTextWhenTheyAreCut(t *testing.T) {
	if got := bounded(strings.Repeat("x", maxAttribute-1) + "é"); got != strings.Repeat("x", maxAttribute-1) {
		t.Errorf("bounded() = %q, want no half of a letter", got)
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	options := testOptions(func(ctx context.Context, r *review.Request) (review.Answer, error) {
		switch r.Admission.GetUid() {
		case "panic":
			panic("boom")
		case "stale":
			return review.Answer{}, context.DeadlineExceeded
		case "denied":
			return review.Answer{Response: &admissionv1.AdmissionResponse{Uid: "denied"}}, nil
		case "failed":
			return review.Answer{Response: &admissionv1.AdmissionResponse{Uid: "failed"}, Failed: true}, nil
		}
		return allow(ctx, r)
	})
	options.Registerer = registry
	e := serve(t, options)
	client := e.client(t)
	for _, uid := range []string{"allowed", "allowed", "denied", "failed", "panic", "stale"} {
		ask(t, client, e.url(validatePath), reviewOf(uid, 1000))
	}
	ask(t, client, e.url("/v1/clusters/prod-1/mutate"), reviewOf("large", 2*testLimit))
	ask(t, client, e.url("/nowhere"), "")

	want := `
# HELP portcullis_bridge_requests_total Reviews answered at the edge, by cluster (empty before the caller is known), edge (json, enforce, grpc), stage, outcome and HTTP status.
# TYPE portcullis_bridge_requests_total counter
portcullis_bridge_requests_total{cluster="prod-1",code="200",edge="json",outcome="allowed",stage="validate"} 2
portcullis_bridge_requests_total{cluster="prod-1",code="200",edge="json",outcome="denied",stage="validate"} 1
portcullis_bridge_requests_total{cluster="prod-1",code="200",edge="json",outcome="failed",stage="validate"} 2
portcullis_bridge_requests_total{cluster="prod-1",code="200",edge="json",outcome="refused",stage="mutate"} 1
portcullis_bridge_requests_total{cluster="",code="404",edge="json",outcome="refused",stage="none"} 1
portcullis_bridge_requests_total{cluster="prod-1",code="503",edge="json",outcome="refused",stage="validate"} 1
# HELP portcullis_bridge_panics_total Panics that were contained; each cost its own review alone.
# TYPE portcullis_bridge_panics_total counter
portcullis_bridge_panics_total 1
`
	names := []string{"portcullis_bridge_requests_total", "portcullis_bridge_panics_total"}
	var last error
	eventually(t, "every answer is counted", func() bool { // which happens after it was sent
		last = testutil.GatherAndCompare(registry, strings.NewReader(want), names...)
		return last == nil || testutil.CollectAndCount(e.instruments.requests) == 6
	})
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		switch family.GetName() {
		case "portcullis_bridge_request_duration_seconds":
			buckets := family.GetMetric()[0].GetHistogram().GetBucket()
			if first, last := buckets[0].GetUpperBound(), buckets[len(buckets)-1].GetUpperBound(); first != .00005 || last != 34 {
				t.Errorf("buckets from %v to %v, want 50 us to 34 s", first, last)
			}
		case "portcullis_bridge_request_body_bytes":
			if got := family.GetMetric()[0].GetHistogram(); got.GetSampleCount() != 6 || got.GetSampleSum() != 6000 {
				t.Errorf("bodies = %v, want six of 1000 bytes", got)
			}
		}
	}
}

func TestMetricsOverGRPC(t *testing.T) {
	for outcome, answer := range map[string]review.Answer{
		"allowed": {Response: &admissionv1.AdmissionResponse{Allowed: true}},
		"denied":  {Response: &admissionv1.AdmissionResponse{}},
		"failed":  {Response: &admissionv1.AdmissionResponse{}, Failed: true},
	} {
		b := newBridge(t, testOptions(func(_ context.Context, r *review.Request) (review.Answer, error) {
			answer.Response.Uid = r.Admission.GetUid()
			return answer, nil
		}))
		got, err := serveGRPC(t, b)("kube-apiserver").Review(t.Context(), grpcReview())
		if err != nil {
			t.Fatal(err)
		}
		if got.GetFailed() != answer.Failed {
			t.Errorf("%s: failed = %t, want %t", outcome, got.GetFailed(), answer.Failed)
		}
		counter := b.instruments.requests.WithLabelValues("prod-1", edgeGRPC, "validate", outcome, "200")
		if got := testutil.ToFloat64(counter); got != 1 {
			t.Errorf("%s: reviews counted = %v, want 1", outcome, got)
		}
	}
}

func TestSampledReviewsLeaveExemplars(t *testing.T) {
	registry := prometheus.NewRegistry()
	options := testOptions(allow)
	options.TracerProvider, options.Registerer = sdktrace.NewTracerProvider(), registry
	e := serve(t, options)
	conn := e.dial(t)
	conn.send(t, post(validatePath, reviewOf("u1", 0), traceparent))
	conn.receive(t)
	eventually(t, "an exemplar names the trace", func() bool {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() != "portcullis_bridge_request_duration_seconds" {
				continue
			}
			for _, bucket := range family.GetMetric()[0].GetHistogram().GetBucket() {
				for _, label := range bucket.GetExemplar().GetLabel() {
					return label.GetValue() == parentTrace
				}
			}
		}
		return false
	})
}

func TestMetricsAreRegisteredOnce(t *testing.T) {
	options := testOptions(allow)
	options.Registerer = prometheus.NewRegistry()
	newBridge(t, options)
	if _, err := New(options); err == nil {
		t.Error("the same metrics were registered twice")
	}
}

// Nothing is logged per request, unless somebody looks for a bug.
func TestLogs(t *testing.T) {
	for level, want := range map[slog.Level]bool{slog.LevelInfo: false, slog.LevelDebug: true} {
		var log bytes.Buffer
		options := testOptions(allow)
		options.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level}))
		e := serve(t, options)
		client := e.client(t)
		ask(t, client, e.url(validatePath), reviewOf("u1", 0))
		ask(t, client, e.url(validatePath), "no review")
		client.CloseIdleConnections()
		if err := e.stop(); err != nil {
			t.Fatal(err)
		}
		if logged := log.Len() > 0; logged != want {
			t.Errorf("at level %v: logged %t, want %t:\n%s", level, logged, want, &log)
		}
	}
}

func TestPanicsAreLoggedWithTheirPlace(t *testing.T) {
	var log bytes.Buffer
	options := testOptions(func(context.Context, *review.Request) (review.Answer, error) { panic("boom") })
	options.Logger = slog.New(slog.NewTextHandler(&log, nil))
	e := serve(t, options)
	if got := ask(t, e.client(t), e.url(validatePath), reviewOf("u1", 0)); got.status != http.StatusOK {
		t.Errorf("answer = %+v", got)
	}
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"boom", "observe_test.go", "uid=u1"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, &log)
		}
	}
}
