package serve

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/dispatcher"
)

func (a *app) entryDrifts() []dispatcher.EntryDrift {
	c := a.store.Configuration()
	return a.judge.EntryDrifts(c.Snapshot())
}

// driftMetric shows for each cluster whether its entries fit.
type driftMetric struct {
	drifts func() []dispatcher.EntryDrift
	desc   *prometheus.Desc
}

func newDriftMetric(drifts func() []dispatcher.EntryDrift) *driftMetric {
	return &driftMetric{drifts, prometheus.NewDesc("portcullis_entry_drift",
		"1 while the reviews of a cluster come by entries that were made from another configuration than the one in force.",
		[]string{"cluster"}, nil)}
}

// Describe implements [prometheus.Collector].
func (m *driftMetric) Describe(out chan<- *prometheus.Desc) { out <- m.desc }

// Collect implements [prometheus.Collector].
func (m *driftMetric) Collect(out chan<- prometheus.Metric) {
	for _, d := range m.drifts() {
		value := 0.0
		if d.Any() {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, value, d.Cluster)
	}
}
