package serve

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/session"
	"github.com/portcullis-mesh/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/internal/cli/printer"
)

// What one dispatcher tells the others is bounded; the rest is counted.
const (
	maxPendingTold    = 64  // pending hooks
	maxPendingMessage = 256 // bytes of what a host says about one
	maxUnservedTold   = 64  // hooks without a host
	maxDriftsTold     = 64  // clusters whose entries do not fit
	maxUnplannedTold  = 4   // hooks of each of them
)

func (a *controlPlane) status(c *config.Configuration) etcdstore.Status {
	s := etcdstore.Status{
		Version: cli.Version(), Digest: c.Digest, Sources: c.Sources, Begun: c.Begun, Judging: c.Judging, MaxAge: c.MaxAge(),
		Pending: pendingHooks(a.hosts.Pending()), Said: time.Now(),
	}
	s.Unserved, s.UnservedMore = unservedHooks(a.hosts.Unserved())
	s.EntryDrifts = toldDrifts(a.judge.EntryDrifts(c.Snapshot()))
	if p := a.live.Permitted(); p != nil {
		s.StaleUntil = p.Until
	}
	for _, key := range c.Diverging() {
		s.Diverging = append(s.Diverging, key.String())
	}
	if held, err := strconv.ParseInt(a.live.Held()[etcdstore.SourceName], 10, 64); err == nil {
		s.Held = held
	}
	return s
}

func sameStatus(a, b *etcdstore.Status) bool {
	return a.Digest == b.Digest && a.Judging == b.Judging && a.Held == b.Held && a.MaxAge == b.MaxAge &&
		a.StaleUntil.Equal(b.StaleUntil) && maps.Equal(a.Sources, b.Sources) &&
		slices.Equal(a.Diverging, b.Diverging) && slices.Equal(a.Pending, b.Pending) &&
		slices.Equal(a.Unserved, b.Unserved) && a.UnservedMore == b.UnservedMore && reflect.DeepEqual(a.EntryDrifts, b.EntryDrifts)
}

// pendingHooks is what the other dispatchers are told of the hooks that are pending.
func pendingHooks(all []session.Pending) []etcdstore.PendingHook {
	var out []etcdstore.PendingHook
	for _, p := range all[:min(len(all), maxPendingTold)] {
		x := etcdstore.PendingHook{Object: config.KeyOf(p.Hook).String(), Hook: p.Hook.ID.Name}
		switch {
		case p.Ready:
			x.Reason, x.Message = etcdstore.PendingReady, p.Host+" is ready, and the store is about to be told"
		case p.Host != "":
			x.Reason, x.Message = etcdstore.PendingNotReady, fmt.Sprintf("%s is not ready: %s", p.Host, saying(p.Message))
		case p.Hosts > 0:
			x.Reason, x.Message = etcdstore.PendingUnanswered, "the host has not answered yet"
		case len(p.Hook.Route.Hosts) == 0:
			x.Reason, x.Message = etcdstore.PendingNobody, "name the identities of its hosts in spec.hosts of a HookRoute"
		default:
			x.Reason, x.Message = etcdstore.PendingMissing, "no host that may serve it is connected"
		}
		out = append(out, x)
	}
	return out
}

// saying is what a host says, for people, within bounds.
func saying(message string) string {
	message = printer.Text(message)
	return strings.ToValidUTF8(message[:min(len(message), maxPendingMessage)], "")
}

// unservedHooks is what the other dispatchers are told of hooks without a host: those that refuse requests first.
func unservedHooks(all []*match.Hook) (told []etcdstore.HookName, more int) {
	slices.SortStableFunc(all, func(a, b *match.Hook) int { return cmp.Compare(rank(a), rank(b)) })
	for _, h := range all[:min(len(all), maxUnservedTold)] {
		told = append(told, etcdstore.HookName{Object: config.KeyOf(h).String(), Hook: h.ID.Name})
	}
	return told, len(all) - len(told)
}

func rank(h *match.Hook) int {
	if h.FailsClosed() {
		return 0
	}
	return 1
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
