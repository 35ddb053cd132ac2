package initializer

import (
	"cmp"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// instrumentation are the metrics of a Stager.
type instrumentation struct {
	ended    *prometheus.CounterVec
	refusals *prometheus.CounterVec
}

func newInstrumentation(s *Stager, registry prometheus.Registerer) (*instrumentation, error) {
	i := &instrumentation{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portcullis_initializer_holds_ended_total", Help: "Held reviews that have ended, by the result of their last initializer.",
		}, []string{"reason"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portcullis_initializer_holds_refused_total",
			Help: "Reviews that were not held, by the bound that they met (cluster, total, bytes, object; written, store, memory of an object that was to be staged).",
		}, []string{"bound"}),
	}
	for _, reason := range outcomes() {
		i.ended.WithLabelValues(reason)
	}
	for _, b := range []Bound{Cluster, Total, Bytes, Object} {
		i.refusals.WithLabelValues(string(b))
	}
	for _, b := range []staged.Bound{staged.Written, staged.Half, staged.Memory} {
		i.refusals.WithLabelValues(string(b))
	}
	if registry == nil {
		return i, nil
	}
	return i, errors.Join(registry.Register(i.ended), registry.Register(i.refusals), registry.Register(heldReviews{s}))
}

// outcomes are all reasons of the end of a hold.
func outcomes() []string {
	return []string{
		outcomeInitialized, outcomeAnswered, outcomeRefused, outcomeDeleted, outcomeExists, outcomeFailed, outcomeCancelled, outcomeNone,
	}
}

// refused counts an error of Stage, and returns it.
func (i *instrumentation) refused(e *FullError) error {
	i.refusals.WithLabelValues(string(e.Bound)).Inc()
	return e
}

// end counts the end of a hold.
func (i *instrumentation) end(h *Hold) {
	h.mu.Lock()
	outcome := cmp.Or(h.outcome, outcomeNone)
	h.mu.Unlock()
	i.ended.WithLabelValues(outcome).Inc()
}

// heldReviews shows the held reviews of each cluster that has any: never more series than clusters that may send reviews.
type heldReviews struct{ stager *Stager }

func heldDesc() *prometheus.Desc {
	return prometheus.NewDesc("portcullis_initializer_held_reviews", "Reviews that this dispatcher holds now.", []string{"cluster"}, nil)
}

// Describe implements [prometheus.Collector].
func (heldReviews) Describe(out chan<- *prometheus.Desc) { out <- heldDesc() }

// Collect implements [prometheus.Collector].
func (c heldReviews) Collect(out chan<- prometheus.Metric) {
	for cluster, n := range c.stager.holds.Clusters() {
		out <- prometheus.MustNewConstMetric(heldDesc(), prometheus.GaugeValue, float64(n), cluster)
	}
}
