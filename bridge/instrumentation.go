package bridge

import (
	"cmp"
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const (
	edgeJSON    = "json"
	edgeEnforce = "enforce"
	edgeGRPC    = "grpc"
	stageNone   = "none"
)

// instrumentation has the metrics of the bridge. Labels take values from closed sets alone.
type instrumentation struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	bytes    prometheus.Histogram
	panics   prometheus.Counter
}

func newInstrumentation() *instrumentation {
	return &instrumentation{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portcullis_bridge_requests_total",
			Help: "Reviews answered at the edge, by edge (json, enforce, grpc), stage, outcome and HTTP status.",
		}, []string{"edge", "stage", "outcome", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "portcullis_bridge_request_duration_seconds",
			Help: "Time from a request's headers to its answer, by edge and stage.",
			// From 1 ms, below which nothing is slow, to 34 s, which is all that a write has in the API server.
			Buckets: []float64{.001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 34},
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
}

func (i *instrumentation) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	return errors.Join(r.Register(i.requests), r.Register(i.duration), r.Register(i.bytes), r.Register(i.panics))
}

// measured is one review in the metrics.
type measured struct {
	edge    string
	stage   admissionv1.Stage
	outcome outcome
	code    int
	bytes   int // 0 when the review was not read whole
	started time.Time
	span    trace.SpanContext
}

func (i *instrumentation) observe(m measured) {
	stage, took := stageName(m.stage), time.Since(m.started).Seconds()
	i.requests.WithLabelValues(m.edge, stage, string(m.outcome), strconv.Itoa(m.code)).Inc()
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
