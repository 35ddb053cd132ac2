package store

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// counts are the reviews that did not find a fresh configuration at once, by outcome. They may be counted concurrently.
type counts struct {
	stale atomic.Int64 // judged by a permit

	// Not judged, by reason.
	full    atomic.Int64 // the wait queue was full
	late    atomic.Int64 // the deadline came
	gone    atomic.Int64 // the caller cancelled
	stopped atomic.Int64 // the store had ended
}

// over counts a review that was not judged in time. ctx is its own context: it has ended only if its caller cancelled.
func (c *counts) over(ctx context.Context) {
	if errors.Is(ctx.Err(), context.Canceled) {
		c.gone.Add(1)
	} else {
		c.late.Add(1)
	}
}

// collector collects the metrics of a store.
type collector struct {
	store                         *Store
	listed, until, reviews, bytes *prometheus.Desc
	superseded, stale, refused    *prometheus.Desc
}

// Collector returns the metrics of a store.
func (s *Store) Collector() prometheus.Collector {
	const prefix = "portcullis_configuration_"
	return &collector{
		store: s,
		listed: prometheus.NewDesc(prefix+"listed_timestamp_seconds",
			"When the last complete listing of the configuration began, in Unix time; none before the first.", nil, nil),
		superseded: prometheus.NewDesc(prefix+"superseded_timestamp_seconds",
			"When a listing began to show a newer configuration than the one in force, in Unix time; none while that is the newest.", nil, nil),
		until: prometheus.NewDesc(prefix+"stale_permitted_until_timestamp_seconds",
			"When the permit to judge by a stale configuration lapses, in Unix time; 0 while none holds.", nil, nil),
		reviews: prometheus.NewDesc(prefix+"held_reviews", "Reviews that wait for a fresh configuration now.", nil, nil),
		bytes:   prometheus.NewDesc(prefix+"held_bytes", "Bytes that these hold.", nil, nil),
		stale: prometheus.NewDesc(prefix+"stale_reviews_total",
			"Reviews that were judged by a stale configuration, by a permit.", nil, nil),
		refused: prometheus.NewDesc(prefix+"refused_total",
			"Reviews that nothing judged since the configuration was stale, by why they waited no more (late, full, gone, stopped).",
			[]string{"reason"}, nil),
	}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.listed, c.superseded, c.until, c.reviews, c.bytes, c.stale, c.refused} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	count := func(d *prometheus.Desc, n *atomic.Int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n.Load()), labels...)
	}
	if g := c.store.current.Load(); !g.begun.IsZero() {
		gauge(c.listed, unix(time.Now().Add(-c.store.age(g))))
		if !g.superseded.IsZero() {
			gauge(c.superseded, unix(time.Now().Add(-Since(g.superseded))))
		}
	}
	until := 0.0
	if p := c.store.Permitted(); p != nil {
		until = float64(p.Until.Unix())
	}
	gauge(c.until, until)
	gauge(c.reviews, float64(c.store.waiting.reviews.InUse()))
	gauge(c.bytes, float64(c.store.waiting.bytes.InUse()))
	n := &c.store.counts
	count(c.stale, &n.stale)
	count(c.refused, &n.late, "late")
	count(c.refused, &n.full, "full")
	count(c.refused, &n.gone, "gone")
	count(c.refused, &n.stopped, "stopped")
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1e3 }
