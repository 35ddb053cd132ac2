package serve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registrar"
)

// breakGlassInterval is how often a break-glass is logged while it is on.
const breakGlassInterval = time.Minute

// breakGlasses are the bypasses with a break-glass that is on at a time, by cluster.
func (a *app) breakGlasses(now time.Time) map[string]*match.Bypass {
	on := map[string]*match.Bypass{}
	c := a.store.Configuration()
	if s := c.Snapshot(); s != nil {
		for cluster, b := range s.Bypasses() {
			if b != nil && now.Before(b.Until) {
				on[cluster] = b
			}
		}
	}
	return on
}

// logBreakGlass logs each break-glass when it begins, each minute, and when it has ended, until ctx ends.
func (a *app) logBreakGlass(ctx context.Context) error {
	t := time.NewTicker(breakGlassInterval)
	defer t.Stop()
	logged := map[string]*match.Bypass{}
	for tick := false; ; {
		c := a.store.Configuration()
		on := a.breakGlasses(time.Now())
		for cluster, b := range on {
			if last := logged[cluster]; tick || last == nil || !last.Until.Equal(b.Until) || last.Reason != b.Reason {
				a.log.Warn("break-glass: no hook is called for the cluster", "cluster", cluster, "until", b.Until, "reason", b.Reason)
			}
		}
		for cluster := range logged {
			if on[cluster] == nil {
				a.log.Warn("break-glass has ended: the hooks of the cluster are called again", "cluster", cluster)
			}
		}
		logged = on
		select {
		case <-c.Next():
			tick = false
		case <-t.C:
			tick = true
		case <-ctx.Done():
			return nil
		}
	}
}

// breakGlassNotes are remarks about a dispatcher that is ready.
func (a *app) breakGlassNotes() []string {
	var notes []string
	for cluster, b := range a.breakGlasses(time.Now()) {
		notes = append(notes, fmt.Sprintf("break-glass: no hook is called for cluster %s until %s: %s",
			cluster, b.Until.UTC().Format(time.RFC3339), b.Reason))
	}
	for _, s := range a.keeper.States() {
		if errors.Is(s.Err, registrar.ErrBreakGlass) {
			notes = append(notes, fmt.Sprintf("break-glass: cluster %s does not call the mesh: %v", s.Cluster, s.Err))
		}
	}
	return notes
}

// breakGlassMetric shows the end of each break-glass that is on.
type breakGlassMetric struct {
	app  *app
	desc *prometheus.Desc
}

func newBreakGlassMetric(a *app) *breakGlassMetric {
	return &breakGlassMetric{a, prometheus.NewDesc("portcullis_break_glass_until_timestamp_seconds",
		"End of the break-glass that is on for a cluster, in seconds since 1970; no series without one.", []string{"cluster"}, nil)}
}

// Describe implements [prometheus.Collector].
func (m *breakGlassMetric) Describe(out chan<- *prometheus.Desc) { out <- m.desc }

// Collect implements [prometheus.Collector].
func (m *breakGlassMetric) Collect(out chan<- prometheus.Metric) {
	for cluster, b := range m.app.breakGlasses(time.Now()) {
		out <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(b.Until.Unix()), cluster)
	}
}
