package memory

import "github.com/prometheus/client_golang/prometheus"

// collector shows a ledger as metrics.
type collector struct {
	ledger                           *Ledger
	budget, used, byCluster, refused *prometheus.Desc
}

// Collector returns the metrics of a ledger. There is a series for each cluster that holds something when they are read:
// never more than there are clusters that may send reviews.
func (l *Ledger) Collector() prometheus.Collector {
	const prefix = "portcullis_memory_"
	return &collector{
		ledger: l,
		budget: prometheus.NewDesc(prefix+"budget_bytes", "Bytes that reviews may hold.", nil, nil),
		used:   prometheus.NewDesc(prefix+"used_bytes", "Bytes that reviews hold now, from their arrival to the last write.", nil, nil),
		byCluster: prometheus.NewDesc(prefix+"cluster_used_bytes",
			"Bytes that the reviews of a cluster hold now.", []string{"cluster"}, nil),
		refused: prometheus.NewDesc(prefix+"refused_total",
			"Reservations that were refused, by the bound that they met (cluster, total).", []string{"bound"}, nil),
	}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.budget, c.used, c.byCluster, c.refused} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	gauge(c.budget, c.ledger.total)
	gauge(c.used, c.ledger.InUse())
	for cluster, bytes := range c.ledger.Clusters() {
		gauge(c.byCluster, bytes, cluster)
	}
	for _, bound := range []Bound{Cluster, Total} {
		out <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(c.ledger.Refused(bound)), string(bound))
	}
}
