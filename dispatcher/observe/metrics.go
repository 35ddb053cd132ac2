package observe

import (
	"cmp"
	"errors"
	"sync/atomic"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/telemetry/series"
)

const (
	// MaxHookSeries is how many hooks of a configuration have series of their own. The others are counted under the name "(other)".
	MaxHookSeries = 2000
	// MaxClusterSeries is the same for clusters.
	MaxClusterSeries = 1000
)

// buckets returns the bounds of histograms in seconds, from 50 us, which a verdict of a near host takes, to 34 s, which is all that a write
// has in the API server. They include all bounds of kube-apiserver's histogram of webhooks, so that queries for that one work with these.
func buckets() []float64 {
	return []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25, 34}
}

// phaseBuckets are the buckets of the phases of calls, in seconds. They are five alone: with the buckets above, four phases would be most of all
// series. They show without native histograms which phase is slow; native histograms have the rest.
func phaseBuckets() []float64 { return []float64{.001, .01, .1, 1, 10} }

// instruments are the metrics of a dispatcher. Hooks are counted with the labels that kube-apiserver has for webhooks
// (SEMANTICS C45, k8s.io/apiserver/pkg/admission/metrics; the table is in docs/metrics.md). The label "type" has kube-apiserver's values, the
// label "stage" has Portcullis' own. Labels are bounded: names of configured hooks or values of closed sets.
type instruments struct {
	reviews      *prometheus.HistogramVec // cluster, stage, outcome
	durations    *prometheus.HistogramVec // name, type, operation, rejected
	phases       *prometheus.HistogramVec // name, type, phase
	requests     *prometheus.CounterVec   // name, type, operation, code, rejected
	rejections   *prometheus.CounterVec   // name, type, operation, error_type, rejection_code
	failOpen     *prometheus.CounterVec   // name, type
	failClosed   *prometheus.CounterVec   // name, type
	failures     *prometheus.CounterVec   // name, type, kind
	skipped      *prometheus.CounterVec   // name, type, reason
	shadowCalls  *prometheus.CounterVec   // name, type, outcome
	speculations *prometheus.CounterVec   // name, type, outcome
	allowed      atomic.Pointer[allowedSeries]
	bypassed     *prometheus.CounterVec // cluster, reason
	encodes      prometheus.Counter
	bytes        prometheus.Counter

	hooks    *series.Set[hookLabels]
	clusters *series.Set[string]
}

// hookLabels are the labels of a hook: several configurations may have hooks of one name.
type hookLabels struct{ name, kind string }

func newInstruments(registry prometheus.Registerer) (*instruments, error) {
	i := &instruments{
		reviews: histogram("portcullis_review_duration_seconds", "Time to judge one review.", buckets(), "cluster", "stage", "outcome"),
		durations: histogram("portcullis_hook_admission_duration_seconds", "Time of one call of one hook.", buckets(),
			"name", "type", "operation", "rejected"),
		phases: histogram("portcullis_hook_phase_duration_seconds", "Time that calls with a verdict spent in each phase.", phaseBuckets(),
			"name", "type", "phase"),
		requests: counters("portcullis_hook_request_total", "Calls of hooks, by the HTTP status that stands for the result.",
			"name", "type", "operation", "code", "rejected"),
		rejections: counters("portcullis_hook_rejection_total", "Reviews that were refused for a hook.",
			"name", "type", "operation", "error_type", "rejection_code"),
		failOpen: counters("portcullis_hook_fail_open_total", "Calls without a verdict that failurePolicy Ignore let pass.",
			"name", "type"),
		failClosed: counters("portcullis_hook_fail_closed_total", "Reviews that were refused since a hook gave no verdict or could not be asked.",
			"name", "type"),
		failures: counters("portcullis_hook_failures_total", "Calls without a verdict, by the kind of failure.",
			"name", "type", "kind"),
		skipped: counters("portcullis_hook_skipped_total", "Reviews that the rules of a hook cover and that it was not asked about.",
			"name", "type", "reason"),
		shadowCalls: counters("portcullis_hook_shadow_total", "Calls of hooks in shadow, by their outcome.",
			"name", "type", "outcome"),
		speculations: counters("portcullis_hook_speculation_total", "Calls of hooks ahead of their turn, by their use.",
			"name", "type", "outcome"),
		bypassed: counters("portcullis_review_bypassed_total", "Reviews that no hook was asked about, since the bypass of the cluster exempts them.",
			"cluster", "reason"),
		encodes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portcullis_review_encodings_total", Help: "Encodings of a request for hosts.",
		}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portcullis_review_encoded_bytes_total", Help: "Bytes of the requests encoded for hosts.",
		}),
	}
	i.bound()
	if registry == nil {
		return i, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{i.hooks, i.clusters, i.encodes, i.bytes, conditionMetrics{i.hooks}} {
		errs = append(errs, registry.Register(c))
	}
	return i, errors.Join(errs...)
}

// bound makes the sets of hooks and clusters with series of their own.
func (i *instruments) bound() {
	i.hooks = series.New(series.Options[hookLabels]{
		Max: MaxHookSeries, Name: "portcullis_hooks_without_series",
		Help:   "Hooks in force that metrics count under the name (other), since too many others have series of their own.",
		Labels: func(h hookLabels) prometheus.Labels { return prometheus.Labels{"name": h.name, "type": h.kind} },
		Begin: func(h hookLabels) {
			i.failOpen.WithLabelValues(h.name, h.kind)
			i.failClosed.WithLabelValues(h.name, h.kind)
			i.skipped.WithLabelValues(h.name, h.kind, match.SkipPending)
			for k := review.FailureTimeout; k <= review.FailureCancelled; k++ {
				i.failures.WithLabelValues(h.name, h.kind, k.String())
			}
		},
		Vecs: []series.Vec{
			i.durations, i.phases, i.requests, i.rejections, i.failOpen, i.failClosed, i.failures, i.skipped, i.shadowCalls, i.speculations,
		},
	})
	i.clusters = series.New(series.Options[string]{
		Max: MaxClusterSeries, Name: "portcullis_clusters_without_series",
		Help:   "Clusters that metrics count under the name (other), since too many others have series of their own.",
		Labels: func(name string) prometheus.Labels { return prometheus.Labels{"cluster": name} },
		Begin: func(name string) {
			for _, stage := range []admissionv1.Stage{admissionv1.Stage_STAGE_MUTATE, admissionv1.Stage_STAGE_VALIDATE} {
				i.reviews.WithLabelValues(name, stageLabel(stage), string(review.OutcomeFailed))
				i.reviews.WithLabelValues(name, stageLabel(stage), string(review.OutcomeRefused))
			}
			for _, kind := range match.BypassKinds() {
				i.bypassed.WithLabelValues(name, kind)
			}
		},
		Vecs: []series.Vec{i.reviews, i.bypassed},
	})
}

// labels returns the labels of a hook: series.Other in place of its name if it has no series of its own.
func (i *instruments) labels(h *match.Hook) hookLabels {
	l := labelsOf(h)
	if !i.hooks.Own(l) {
		l.name = series.Other
	}
	return l
}

func labelsOf(h *match.Hook) hookLabels { return hookLabels{h.ID.Name, typeLabel(h)} }

// clusterLabel is the same for a cluster.
func (i *instruments) clusterLabel(name string) string {
	if !i.clusters.Own(name) {
		return series.Other
	}
	return name
}

// Bounds of native histograms. Each bucket is wider than the one before by the factor: a quantile is at most 10 % off.
const (
	nativeFactor  = 1.1
	nativeBuckets = 100
	nativeReset   = time.Hour // at the earliest, when there are more buckets
)

// histogram makes a family of histograms, which are native ones for a Prometheus that asks for these.
func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: nativeFactor, NativeHistogramMaxBucketNumber: nativeBuckets, NativeHistogramMinResetDuration: nativeReset,
	}, labels)
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// exemplarOf is the trace of a span as the exemplar of observations; nil unless it is sampled.
func exemplarOf(span trace.Span) prometheus.Labels {
	if c := span.SpanContext(); c.IsSampled() {
		return prometheus.Labels{"trace_id": c.TraceID().String()}
	}
	return nil
}

// observe records a duration, with an exemplar unless that is nil. The exemplar is only read.
func observe(o prometheus.Observer, took time.Duration, exemplar prometheus.Labels) {
	if exemplars, ok := o.(prometheus.ExemplarObserver); ok && exemplar != nil {
		exemplars.ObserveWithExemplar(took.Seconds(), exemplar)
		return
	}
	o.Observe(took.Seconds())
}

// typeLabel returns the type of a hook as kube-apiserver's metrics of webhooks spell it.
func typeLabel(h *match.Hook) string {
	switch {
	case h.Initializes():
		return "initialize"
	case h.ID.Stage == admissionv1.Stage_STAGE_VALIDATE:
		return "validating"
	}
	return "admit"
}

func stageLabel(s admissionv1.Stage) string { return cmp.Or(match.StageName(s), "other") }
