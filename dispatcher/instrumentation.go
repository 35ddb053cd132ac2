package dispatcher

import (
	"context"
	"errors"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// scope is the instrumentation scope of the spans.
const scope = "github.com/portcullis-mesh/portcullis/dispatcher"

// instrumentation is what operators see of the dispatcher. Labels are bounded: names of configured hooks, and closed sets.
type instrumentation struct {
	tracer   trace.Tracer
	reviews  *prometheus.HistogramVec // stage, outcome
	calls    *prometheus.HistogramVec // name, type, operation, outcome
	failOpen *prometheus.CounterVec   // name, type
	encodes  prometheus.Counter
	bytes    prometheus.Counter
}

// newInstrumentation makes the instruments and registers them if there is a registry.
func newInstrumentation(registry prometheus.Registerer, provider trace.TracerProvider) (*instrumentation, error) {
	if provider == nil {
		provider = noop.NewTracerProvider()
	}
	// 1 ms to 34 s: from a good hook to the longest write that an API server waits for.
	buckets := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 34}
	i := &instrumentation{
		tracer: provider.Tracer(scope),
		reviews: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "portcullis_review_duration_seconds", Help: "Time to judge one review.", Buckets: buckets,
		}, []string{"stage", "outcome"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "portcullis_hook_duration_seconds", Help: "Time of one call of one hook.", Buckets: buckets,
		}, []string{"name", "type", "operation", "outcome"}),
		failOpen: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portcullis_hook_fail_open_count", Help: "Calls without a verdict that failure policy Ignore let pass.",
		}, []string{"name", "type"}),
		encodes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portcullis_review_encodings_total", Help: "Encodings of a request for hosts.",
		}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portcullis_review_encoded_bytes_total", Help: "Bytes of the requests encoded for hosts.",
		}),
	}
	if registry == nil {
		return i, nil
	}
	return i, errors.Join(registry.Register(i.reviews), registry.Register(i.calls), registry.Register(i.failOpen),
		registry.Register(i.encodes), registry.Register(i.bytes))
}

// beginReview starts the span of a review.
func (i *instrumentation) beginReview(ctx context.Context, r *review.Request) (context.Context, trace.Span) {
	ctx, span := i.tracer.Start(ctx, "portcullis.review")
	if span.IsRecording() {
		a := r.Admission
		span.SetAttributes(
			attribute.String("k8s.cluster.name", a.GetCluster()),
			attribute.String("k8s.namespace.name", a.GetNamespace()),
			attribute.String("portcullis.stage", typeLabel(r.Stage)),
			attribute.String("portcullis.uid", a.GetUid()),
			attribute.String("portcullis.operation", a.GetOperation()),
			attribute.String("portcullis.resource", a.GetResource().GetResource()),
		)
	}
	return ctx, span
}

// endReview records how a review ended.
func (i *instrumentation) endReview(
	span trace.Span, r *review.Request, a review.Answer, err error, took time.Duration,
) {
	outcome := "allowed"
	switch {
	case err != nil:
		outcome = "unjudged"
		span.SetStatus(codes.Error, err.Error())
	case !a.Response.GetAllowed():
		outcome = "denied"
	}
	i.reviews.WithLabelValues(typeLabel(r.Stage), outcome).Observe(took.Seconds())
	for _, hook := range a.FailedOpen {
		i.failOpen.WithLabelValues(hook, typeLabel(r.Stage)).Inc()
	}
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("portcullis.outcome", outcome), attribute.String("portcullis.revision", a.Revision))
	}
	span.End()
}

// encoded counts an encoding of a request.
func (i *instrumentation) encoded(bytes int) {
	i.encodes.Inc()
	i.bytes.Add(float64(bytes))
}

// beginCall starts the span of a call.
func (i *instrumentation) beginCall(ctx context.Context, c chain.Call) trace.Span {
	_, span := i.tracer.Start(ctx, "portcullis.call", trace.WithSpanKind(trace.SpanKindClient))
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("portcullis.configuration", c.Hook.ID.Configuration),
			attribute.String("portcullis.hook", c.Hook.ID.Name),
			attribute.Int("portcullis.round", int(c.Round)),
		)
	}
	return span
}

// endCall records how a call ended.
func (i *instrumentation) endCall(f *flight, r *review.Request, result review.Result) {
	outcome := callOutcome(result)
	i.calls.WithLabelValues(f.hook.ID.Name, typeLabel(r.Stage), operationLabel(r.Admission.GetOperation()), outcome).
		Observe(time.Since(f.begun).Seconds())
	if f.span.IsRecording() {
		t := result.Timing
		f.span.SetAttributes(
			attribute.String("portcullis.outcome", outcome),
			attribute.String("portcullis.host.instance", t.Instance),
			attribute.Int64("portcullis.queued_us", t.Queued.Microseconds()),
			attribute.Int64("portcullis.wire_us", t.Wire.Microseconds()),
			attribute.Int64("portcullis.host_us", t.Host.Microseconds()),
		)
		if result.Failure != nil {
			f.span.SetStatus(codes.Error, result.Failure.Error())
		}
	}
	f.span.End()
}

// callOutcome is a result as a label.
func callOutcome(r review.Result) string {
	switch {
	case r.Failure != nil:
		return r.Failure.Kind.String()
	case r.Verdict.GetAllowed():
		return "allowed"
	}
	return "denied"
}

// typeLabel is a stage as kube-apiserver's own metrics call it.
func typeLabel(s admissionv1.Stage) string {
	switch s {
	case admissionv1.Stage_STAGE_VALIDATE:
		return "validating"
	case admissionv1.Stage_STAGE_MUTATE:
		return "admit"
	case admissionv1.Stage_STAGE_REINVOKE:
		return "reinvoke"
	case admissionv1.Stage_STAGE_ADMIT, admissionv1.Stage_STAGE_UNSPECIFIED:
	}
	return "other"
}

// operationLabel keeps the label bounded whatever a caller sends.
func operationLabel(operation string) string {
	switch operation {
	case "CREATE", "UPDATE", "DELETE", "CONNECT":
		return operation
	}
	return "other"
}
