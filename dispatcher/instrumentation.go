package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// scope is the instrumentation scope of the spans.
const scope = "github.com/portcullis-mesh/portcullis/dispatcher"

// buckets returns the bounds of histograms in seconds. They include all bounds of kube-apiserver's histogram of webhooks, so
// that queries for that one work with these.
func buckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25}
}

// instrumentation holds the metrics and the tracer of the dispatcher. Hooks are counted with the labels that kube-apiserver
// has for webhooks (SEMANTICS C45, k8s.io/apiserver/pkg/admission/metrics; the table is in docs/operations.md). The label
// "type" has kube-apiserver's values, the label "stage" those of Portcullis. Labels are bounded: names of configured hooks
// or values of closed sets.
type instrumentation struct {
	tracer       trace.Tracer
	callSpan     []trace.SpanStartOption  // of the span of a call
	reviews      *prometheus.HistogramVec // stage, outcome
	durations    *prometheus.HistogramVec // name, type, operation, rejected
	requests     *prometheus.CounterVec   // name, type, operation, code, rejected
	rejections   *prometheus.CounterVec   // name, type, operation, error_type, rejection_code
	failOpen     *prometheus.CounterVec   // name, type
	failures     *prometheus.CounterVec   // name, type, kind
	skipped      *prometheus.CounterVec   // name, type, reason
	shadowCalls  *prometheus.CounterVec   // name, type, outcome
	speculations *prometheus.CounterVec   // name, type, outcome
	allowed      atomic.Pointer[allowedSeries]
	encodes      prometheus.Counter
	bytes        prometheus.Counter
}

func newInstrumentation(registry prometheus.Registerer, provider trace.TracerProvider) (*instrumentation, error) {
	if provider == nil {
		provider = noop.NewTracerProvider()
	}
	i := &instrumentation{
		tracer:   provider.Tracer(scope),
		callSpan: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)},
		reviews:  histogram("portcullis_review_duration_seconds", "Time to judge one review.", "stage", "outcome"),
		durations: histogram("portcullis_hook_admission_duration_seconds", "Time of one call of one hook.",
			"name", "type", "operation", "rejected"),
		requests: counters("portcullis_hook_request_total", "Calls of hooks, by the HTTP status that stands for the result.",
			"name", "type", "operation", "code", "rejected"),
		rejections: counters("portcullis_hook_rejection_total", "Reviews that were refused for a hook.",
			"name", "type", "operation", "error_type", "rejection_code"),
		failOpen: counters("portcullis_hook_fail_open_total", "Calls without a verdict that failurePolicy Ignore let pass.",
			"name", "type"),
		failures: counters("portcullis_hook_failures_total", "Calls without a verdict, by what went wrong.",
			"name", "type", "kind"),
		skipped: counters("portcullis_hook_skipped_total", "Reviews that the rules of a hook cover and that it was not asked about.",
			"name", "type", "reason"),
		shadowCalls: counters("portcullis_hook_shadow_total", "Calls of hooks in shadow, by what they would have done.",
			"name", "type", "outcome"),
		speculations: counters("portcullis_hook_speculation_total", "Calls of hooks ahead of their turn, by what they were good for.",
			"name", "type", "outcome"),
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
	var errs []error
	for _, c := range []prometheus.Collector{
		i.reviews, i.durations, i.requests, i.rejections, i.failOpen, i.failures, i.skipped, i.shadowCalls, i.speculations, i.encodes, i.bytes,
		conditionMetrics{},
	} {
		errs = append(errs, registry.Register(c))
	}
	return i, errors.Join(errs...)
}

func histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets()}, labels)
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// observe records a duration, with its trace as exemplar if that is sampled.
func observe(o prometheus.Observer, took time.Duration, span trace.SpanContext) {
	if exemplars, ok := o.(prometheus.ExemplarObserver); ok && span.IsSampled() {
		exemplars.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": span.TraceID().String()})
		return
	}
	o.Observe(took.Seconds())
}

func (i *instrumentation) beginReview(ctx context.Context, r *review.Request) (context.Context, trace.Span) {
	ctx, span := i.tracer.Start(ctx, "portcullis.review")
	if span.IsRecording() {
		a := r.Admission
		span.SetAttributes(
			attribute.String("k8s.cluster.name", a.GetCluster()),
			attribute.String("k8s.namespace.name", a.GetNamespace()),
			attribute.String("portcullis.stage", stageLabel(r.Stage)),
			attribute.String("portcullis.uid", a.GetUid()),
			attribute.String("portcullis.operation", a.GetOperation()),
			attribute.String("portcullis.resource", a.GetResource().GetResource()),
		)
	}
	return ctx, span
}

// endReview records the outcome of a review. A denial is not an error of the span; an unjudged review is one.
func (i *instrumentation) endReview(
	span trace.Span, r *review.Request, a review.Answer, err error, took time.Duration,
) {
	outcome := "allowed"
	switch {
	case err != nil:
		outcome = "unjudged"
		span.SetStatus(codes.Error, err.Error())
	case a.Failed:
		outcome = "failed"
		span.SetStatus(codes.Error, a.Response.GetStatus().GetMessage())
	case !a.Response.GetAllowed():
		outcome = "denied"
	}
	observe(i.reviews.WithLabelValues(stageLabel(r.Stage), outcome), took, span.SpanContext())
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("portcullis.outcome", outcome), attribute.String("portcullis.revision", a.Revision))
	}
	span.End()
}

func (i *instrumentation) countEncoding(bytes int) {
	i.encodes.Inc()
	i.bytes.Add(float64(bytes))
}

func (i *instrumentation) countShadow(h *match.Hook, outcome string) {
	i.shadowCalls.WithLabelValues(h.ID.Name, typeLabel(h), outcome).Inc()
}

// beginCall starts the span of a call, unless the span of the review is not recorded.
func (i *instrumentation) beginCall(ctx context.Context, parent trace.Span, c review.Call) trace.Span {
	if !parent.IsRecording() {
		return noop.Span{}
	}
	_, span := i.tracer.Start(ctx, "portcullis.call", i.callSpan...)
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("portcullis.configuration", c.Hook.ID.Configuration),
			attribute.String("portcullis.hook", c.Hook.ID.Name),
			attribute.Int("portcullis.round", int(c.Round)),
		)
	}
	return span
}

// typeLabel returns the type of a hook as kube-apiserver's metrics of webhooks spell it.
func typeLabel(h *match.Hook) string {
	if h.ID.Stage == admissionv1.Stage_STAGE_VALIDATE {
		return "validating"
	}
	return "admit"
}

func stageLabel(s admissionv1.Stage) string { return cmp.Or(match.StageName(s), "other") }
