package session

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// MaxReplicaSeries is how many replicas have metrics of their own. Past it each identity has metrics of its oldest replicas, as many as the
// others leave it.
const MaxReplicaSeries = 1000

// replicaMetrics are the metrics of each replica that serves a hook. It has series for the sessions of the moment.
type replicaMetrics struct {
	router                *Router
	slots, used, p99, cut *prometheus.Desc
}

func newReplicaMetrics(r *Router) *replicaMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &replicaMetrics{
		router: r,
		slots:  desc("portcullis_host_replica_slots", "Calls that a replica takes at a time: its credit.", "host", "replica"),
		used:   desc("portcullis_host_replica_used_slots", "Calls that a replica has.", "host", "replica"),
		p99: desc("portcullis_host_replica_p99_seconds",
			"99th percentile of how long the latest calls of a replica took; 0 without calls.", "host", "replica"),
		cut: desc("portcullis_host_replicas_without_series",
			"Replicas without metrics of their own, since too many others have them."),
	}
}

// Describe implements [prometheus.Collector].
func (m *replicaMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.slots, m.used, m.p99, m.cut} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *replicaMetrics) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	all := replicasOf(m.router.all())
	own := shareSeries(all, MaxReplicaSeries)
	for _, x := range own {
		var slots, used int64
		var slowest time.Duration
		for _, s := range x.sessions {
			taken := s.UsedSlots()
			slots, used = slots+taken+s.FreeSlots(), used+taken
			_, p99 := s.Percentiles()
			slowest = max(slowest, p99)
		}
		gauge(m.slots, float64(slots), x.host, x.instance)
		gauge(m.used, float64(used), x.host, x.instance)
		gauge(m.p99, slowest.Seconds(), x.host, x.instance)
	}
	gauge(m.cut, float64(len(all)-len(own)))
}

// replica is one process of a host, as metrics have it. It has several sessions while one takes the place of another.
type replica struct {
	host, instance string
	joined         time.Time
	sessions       []*hostSession
}

// replicasOf are the replicas that serve a hook.
func replicasOf(sessions []*hostSession) []*replica {
	type key struct{ host, instance string }
	known := map[key]*replica{}
	var all []*replica
	for _, s := range sessions {
		if len(s.Memberships()) == 0 {
			continue // no HookRoute bounds such identities
		}
		k := key{strings.ToValidUTF8(s.Peer.Name(), "?"), strings.ToValidUTF8(s.Instance(), "?")}
		x := known[k]
		if x == nil {
			x = &replica{host: k.host, instance: k.instance, joined: s.joined}
			known[k] = x
			all = append(all, x)
		}
		if s.joined.Before(x.joined) {
			x.joined = s.joined
		}
		x.sessions = append(x.sessions, s)
	}
	return all
}

// shareSeries gives each host one replica in turn, the oldest first, until there are most of them.
func shareSeries(all []*replica, most int) []*replica {
	slices.SortFunc(all, func(a, b *replica) int {
		return cmp.Or(cmp.Compare(a.host, b.host), a.joined.Compare(b.joined), cmp.Compare(a.instance, b.instance))
	})
	turns, of := map[string]int{}, make(map[*replica]int, len(all))
	for _, x := range all {
		of[x] = turns[x.host]
		turns[x.host]++
	}
	slices.SortStableFunc(all, func(a, b *replica) int { return cmp.Compare(of[a], of[b]) })
	return all[:min(len(all), most)]
}
