package session

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/pool"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// HookHosts is how the hosts of this dispatcher serve a hook.
type HookHosts struct {
	// Hook is the hook.
	Hook *match.Hook
	// Hosts is how many sessions take calls of the hook, and Slots how many calls they take at a time, of all their hooks.
	Hosts, Slots int
	// Unserved is true when no session has taken calls of the hook for longer than a host takes to come back: they fail at once.
	Unserved bool
	// Pending is why the hook is not in rotation yet; nil if it is.
	Pending *Pending
	// Removed is true of a hook that the configuration in force does not have, and that reviews may still call.
	Removed bool
}

// HookHosts are the hooks that hosts may serve: the hooks of the configuration in force, in its order, and then removed hooks.
func (r *Router) HookHosts() []HookHosts {
	now, v := time.Now(), r.hooks.Load()
	out := make([]HookHosts, 0, len(v.pools))
	for _, p := range v.pools {
		x := HookHosts{Hook: p.Hook(), Hosts: p.OpenMembers(), Slots: p.Slots(), Unserved: p.Unserved(now), Removed: v.removedHook(p)}
		if h := v.pending[p]; h != nil {
			x.Pending = pendingOf(p, h)
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b HookHosts) int {
		if a.Removed != b.Removed {
			return cmp.Compare(rank(a.Removed), rank(b.Removed))
		}
		return cmp.Compare(a.Hook.Ordinal(), b.Hook.Ordinal())
	})
	return out
}

// rank sorts false before true.
func rank(is bool) int {
	if is {
		return 1
	}
	return 0
}

// Unserved are the hooks in rotation without a host, in the order of the configuration.
func (r *Router) Unserved() []*match.Hook {
	now, v := time.Now(), r.hooks.Load()
	var out []*match.Hook
	for p := range v.inRotation() {
		if p.Unserved(now) {
			out = append(out, p.Hook())
		}
	}
	slices.SortFunc(out, func(a, b *match.Hook) int { return cmp.Compare(a.Ordinal(), b.Ordinal()) })
	return out
}

// inRotation yields the pools of the hooks that the snapshot has and that are called.
func (v *hookTable) inRotation() func(yield func(*pool.Pool) bool) {
	return func(yield func(*pool.Pool) bool) {
		for id, p := range v.pools {
			if _, removed := v.removed[id]; !removed && v.pending[p] == nil && !yield(p) {
				return
			}
		}
	}
}

// hookHosts is the metric of how many hosts serve each hook. It has series for the hooks in force at the moment.
type hookHosts struct {
	router *Router
	desc   *prometheus.Desc
}

func newHookHosts(r *Router) hookHosts {
	return hookHosts{r, prometheus.NewDesc("portcullis_hook_hosts",
		"Hosts that take calls of a hook; of hooks with one name and type, the count of the hook with the fewest.",
		[]string{"name", "type"}, nil)}
}

// Describe implements [prometheus.Collector].
func (m hookHosts) Describe(out chan<- *prometheus.Desc) { out <- m.desc }

// Collect implements [prometheus.Collector].
func (m hookHosts) Collect(out chan<- prometheus.Metric) {
	v, fewest := m.router.hooks.Load(), map[pool.Offer]int{}
	for id, p := range v.pools {
		if _, removed := v.removed[id]; removed {
			continue
		}
		o, n := offerOf(p.Hook()), p.OpenMembers()
		if known, ok := fewest[o]; !ok || n < known {
			fewest[o] = n
		}
	}
	for o, n := range fewest {
		out <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(n), o.Name, metricType(o.Stage))
	}
}

// metricType is the type of a hook as the metrics of package dispatcher have it.
func metricType(s admissionv1.Stage) string {
	switch {
	case s == admissionv1.Stage_STAGE_INITIALIZE:
		return "initialize"
	case s == admissionv1.Stage_STAGE_VALIDATE:
		return "validating"
	}
	return "admit"
}
