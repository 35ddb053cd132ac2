package staged

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
)

// instrumentation are the metrics of a store.
type instrumentation struct {
	repaired prometheus.Counter
}

func newInstrumentation(c *cache, s *Store, registry prometheus.Registerer) (*instrumentation, error) {
	i := &instrumentation{repaired: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "portcullis_staged_objects_repaired_total",
		Help: "Staged objects that this dispatcher has deleted, since they had no lease or were too old.",
	})}
	if registry == nil {
		return i, nil
	}
	return i, errors.Join(registry.Register(i.repaired), registry.Register(newCollector(c, s)))
}

// collector shows the staged objects of all dispatchers. There is a series for each cluster that has something staged: never more than
// there are clusters that may send reviews.
type collector struct {
	cache                           *cache
	store                           *Store
	inUse, quota, full, written     *prometheus.Desc
	objects, bytes, unread, watches *prometheus.Desc
	unbooked                        *prometheus.Desc
}

func newCollector(c *cache, s *Store) *collector {
	return &collector{
		cache: c, store: s,
		objects: prometheus.NewDesc("portcullis_staged_objects",
			"Objects of a cluster that all dispatchers have staged now.", []string{"cluster"}, nil),
		bytes: prometheus.NewDesc("portcullis_staged_object_bytes",
			"Bytes of the objects that all dispatchers have staged now, as this one has them in memory.", nil, nil),
		unread: prometheus.NewDesc("portcullis_staged_objects_unreadable",
			"Staged objects that this dispatcher cannot decrypt or decode.", nil, nil),
		unbooked: prometheus.NewDesc("portcullis_staged_objects_unbooked",
			"Staged objects of a cluster that this dispatcher does not keep, since the cluster has no room left in --memory-budget.", []string{"cluster"}, nil),
		watches: prometheus.NewDesc("portcullis_staged_watches", "Watches of staged objects that this dispatcher serves now.", nil, nil),
		inUse:   prometheus.NewDesc("portcullis_store_bytes", "Bytes of the database of etcd that hold something, also old versions.", nil, nil),
		quota:   prometheus.NewDesc("portcullis_store_quota_bytes", "Most bytes that the database of etcd may have.", nil, nil),
		full:    prometheus.NewDesc("portcullis_store_full", "1 while etcd has its alarm NOSPACE, and takes no writes.", nil, nil),
		written: prometheus.NewDesc("portcullis_staged_written_bytes",
			"Bytes of staged objects that this dispatcher has written within the retention of etcd, by cluster.", []string{"cluster"}, nil),
	}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.objects, c.bytes, c.unread, c.unbooked, c.watches, c.inUse, c.quota, c.full, c.written} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(out chan<- prometheus.Metric) {
	n := c.cache.count()
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	for cluster, objects := range n.objects {
		gauge(c.objects, objects, cluster)
	}
	for cluster, objects := range n.unbooked {
		gauge(c.unbooked, objects, cluster)
	}
	gauge(c.bytes, n.bytes)
	gauge(c.unread, n.unread)
	gauge(c.watches, n.watches)
	for cluster, bytes := range c.store.written.Written() {
		gauge(c.written, int(bytes), cluster)
	}
	if u := c.store.Usage(); u != nil {
		full := 0
		if u.Full {
			full = 1
		}
		gauge(c.inUse, int(u.InUse))
		gauge(c.quota, int(u.Quota))
		gauge(c.full, full)
	}
}

// counts are numbers of a cache.
type counts struct {
	objects, unbooked      map[string]int // by cluster
	bytes, unread, watches int
}

func (c *cache) count() counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := counts{objects: map[string]int{}, unbooked: map[string]int{}, watches: len(c.watchers)}
	for _, e := range c.entries {
		var full *memory.FullError
		switch {
		case errors.As(e.unread, &full):
			n.unbooked[full.Cluster]++
			continue
		case e.object == nil:
			n.unread++
			continue
		}
		n.objects[e.object.GetKey().GetCluster()]++
		n.bytes += len(e.object.GetObject().GetRaw())
	}
	return n
}
