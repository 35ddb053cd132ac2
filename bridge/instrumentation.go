package bridge

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/telemetry/series"
)

const (
	edgeJSON    = "json"
	edgeEnforce = "enforce"
	edgeGRPC    = "grpc"
	stageNone   = "none"
)

// maxClusterSeries is how many clusters have series of their own, as in package dispatcher.
const maxClusterSeries = 1000

// instrumentation has the metrics of the bridge. Labels take values from closed sets alone, and names of clusters of the configuration.
type instrumentation struct {
	clusters *series.Set[string]
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	bytes    prometheus.Histogram
	panics   prometheus.Counter
}

func newInstrumentation() *instrumentation {
	i := &instrumentation{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portcullis_bridge_requests_total",
			Help: "Reviews answered at the edge, by cluster (empty before the caller is known), edge (json, enforce, grpc), stage, outcome and HTTP status.",
		}, []string{"cluster", "edge", "stage", "outcome", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "portcullis_bridge_request_duration_seconds",
			Help: "Time from a request's headers to its answer, by edge and stage.",
			// From 50 us, which no review of a near host takes, to 34 s, which is all that a write has in the API server.
			Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25, 34},
			// Native histograms too, with the bounds of those in package dispatcher.
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"edge", "stage"}),
		bytes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "portcullis_bridge_request_body_bytes",
			Help:    "Size of the reviews that were read whole.",
			Buckets: prometheus.ExponentialBuckets(1<<10, 4, 8), // 1 KiB to 16 MiB
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portcullis_bridge_panics_total",
			Help: "Panics that were contained; each cost its own review alone.",
		}),
	}
	i.clusters = series.New(series.Options[string]{
		Max: maxClusterSeries, Name: "portcullis_bridge_clusters_without_series",
		Help:   "Clusters that metrics of the bridge count under the name (other), since too many others have series of their own.",
		Labels: func(name string) prometheus.Labels { return prometheus.Labels{"cluster": name} },
		Begin:  i.begin,
		Vecs:   []series.Vec{i.requests},
	})
	return i
}

// begin makes the counters of the answers that API servers of a cluster get without a verdict.
func (i *instrumentation) begin(cluster string) {
	for _, stage := range []admissionv1.Stage{admissionv1.Stage_STAGE_MUTATE, admissionv1.Stage_STAGE_VALIDATE} {
		for outcome, code := range map[review.Outcome]int{
			review.OutcomeFailed: http.StatusOK, review.OutcomeRefused: http.StatusServiceUnavailable,
		} {
			i.requests.WithLabelValues(cluster, edgeJSON, stageName(stage), string(outcome), strconv.Itoa(code))
		}
	}
}

func (i *instrumentation) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	return errors.Join(r.Register(i.clusters), r.Register(i.duration), r.Register(i.bytes), r.Register(i.panics))
}

// measured is one review in the metrics.
type measured struct {
	cluster string // empty before the caller is known to speak for it
	edge    string
	stage   admissionv1.Stage
	outcome review.Outcome
	code    int
	bytes   int // 0 when the review was not read whole
	started time.Time
	span    trace.SpanContext
}

func (i *instrumentation) observe(m measured) {
	stage, took := stageName(m.stage), time.Since(m.started).Seconds()
	if m.cluster != "" && !i.clusters.Own(m.cluster) {
		m.cluster = series.Other
	}
	i.requests.WithLabelValues(m.cluster, m.edge, stage, string(m.outcome), strconv.Itoa(m.code)).Inc()
	if m.bytes > 0 {
		i.bytes.Observe(float64(m.bytes))
	}
	duration := i.duration.WithLabelValues(m.edge, stage)
	if exemplars, ok := duration.(prometheus.ExemplarObserver); ok && m.span.IsSampled() {
		exemplars.ObserveWithExemplar(took, prometheus.Labels{"trace_id": m.span.TraceID().String()})
		return
	}
	duration.Observe(took)
}

// stageName is a stage in paths, labels and logs.
func stageName(stage admissionv1.Stage) string { return cmp.Or(match.StageName(stage), stageNone) }
