package serve

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/dispatcher"
)

const (
	// maxDriftsTold bounds the clusters whose entries do not fit that a dispatcher names to the others.
	maxDriftsTold = 64
	// maxUnplannedTold bounds the hooks of each that it names; the rest is counted.
	maxUnplannedTold = 4
)

func (a *app) entryDrifts() []dispatcher.EntryDrift {
	c := a.store.Configuration()
	return a.judge.EntryDrifts(c.Snapshot())
}

// toldDrifts is what the other dispatchers are told of entries that do not fit.
func toldDrifts(all []dispatcher.EntryDrift) []etcdstore.EntryDrift {
	var told []etcdstore.EntryDrift
	for _, d := range all {
		if !d.Any() || len(told) == maxDriftsTold {
			continue
		}
		t := etcdstore.EntryDrift{Cluster: d.Cluster, Gone: d.Gone}
		for _, h := range d.Unplanned[:min(len(d.Unplanned), maxUnplannedTold)] {
			t.Unplanned = append(t.Unplanned, etcdstore.HookName{Object: config.KeyOf(h).String(), Hook: h.ID.Name})
		}
		t.UnplannedMore = len(d.Unplanned) - len(t.Unplanned)
		told = append(told, t)
	}
	return told
}

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
