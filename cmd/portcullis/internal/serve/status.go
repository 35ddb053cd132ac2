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

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/session"
	"github.com/portcullis-mesh/portcullis/internal/cluster/keeper"
	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
)

// Bounds on the report of one dispatcher to the others. The rest is counted.
const (
	maxPending        = 64  // pending hooks
	maxPendingMessage = 256 // bytes of the message of a host about one
	maxUnserved       = 64  // hooks without a host
	maxDrifts         = 64  // clusters whose entries do not fit
	maxUnplanned      = 4   // hooks of each of them
	maxBehind         = 64  // clusters whose entries are not written yet; the others are named
	maxBehindMessage  = 512 // bytes of the reason
	maxLacking        = 16  // configurations whose requests the entries of each of them do not bring
	maxFollows        = 64  // clusters whose objects this dispatcher follows
	maxFollowed       = 8   // objects of each of them that are not followed
	maxFollowMessage  = 512 // bytes of the reason
)

func (a *controlPlane) status(c *store.Configuration) etcdstore.Status {
	s := etcdstore.Status{
		HostAddresses: a.advertised, Version: cli.Version(), Digest: c.Digest, Sources: c.Sources, Begun: c.Begun, Judging: c.Judging, MaxAge: c.MaxAge(),
		Pending: pendingHooks(a.hosts.Pending()), Said: time.Now(),
	}
	s.Unserved, s.UnservedMore = unservedHooks(a.hosts.Unserved())
	drifts := a.judge.EntryDrifts(c.Snapshot())
	s.EntryDrifts, s.EntriesUnseen = reportDrifts(drifts), reportUnseen(c, drifts)
	s.EntriesBehind, s.EntriesBehindMore = reportBehind(entriesBehind(c, a.kept()))
	s.EntriesWider = reportWider(a.kept())
	s.Follows = reportFollows(a.follows())
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
		slices.Equal(a.Unserved, b.Unserved) && a.UnservedMore == b.UnservedMore && reflect.DeepEqual(a.EntryDrifts, b.EntryDrifts) &&
		slices.Equal(a.EntriesUnseen, b.EntriesUnseen) && reflect.DeepEqual(a.EntriesBehind, b.EntriesBehind) &&
		slices.Equal(a.EntriesBehindMore, b.EntriesBehindMore) && reflect.DeepEqual(a.Follows, b.Follows) &&
		slices.Equal(a.EntriesWider, b.EntriesWider)
}

// pendingHooks are the pending hooks for the report.
func pendingHooks(all []session.Pending) []etcdstore.PendingHook {
	var out []etcdstore.PendingHook
	for _, p := range all[:min(len(all), maxPending)] {
		x := etcdstore.PendingHook{Object: config.KeyOf(p.Hook).String(), Hook: p.Hook.ID.Name}
		x.Reason, x.Message = whyPending(&p)
		out = append(out, x)
	}
	return out
}

// whyPending is why a hook is pending, for programs and for people.
func whyPending(p *session.Pending) (reason, message string) {
	switch {
	case p.Ready:
		return etcdstore.PendingReady, p.Host + " is ready, and the store is about to be told"
	case p.Host != "":
		return etcdstore.PendingNotReady, fmt.Sprintf("%s is not ready: %s", p.Host, hostMessage(p.Message))
	case p.Hosts > 0:
		return etcdstore.PendingUnanswered, "the host has not answered yet"
	case len(p.Hook.Route.Hosts) == 0:
		return etcdstore.PendingNobody, "name the identities of its hosts in spec.hosts of a HookRoute"
	default:
		return etcdstore.PendingMissing, "no host that may serve it is connected"
	}
}

// hostMessage is the message of a host, safe to print and within its bound.
func hostMessage(message string) string {
	message = printer.Text(message)
	return strings.ToValidUTF8(message[:min(len(message), maxPendingMessage)], "")
}

// unservedHooks are the hooks without a host for the report, those that refuse requests first.
func unservedHooks(all []*match.Hook) (reported []etcdstore.HookName, more int) {
	slices.SortStableFunc(all, func(a, b *match.Hook) int { return cmp.Compare(rank(a), rank(b)) })
	for _, h := range all[:min(len(all), maxUnserved)] {
		reported = append(reported, etcdstore.HookName{Object: config.KeyOf(h).String(), Hook: h.ID.Name})
	}
	return reported, len(all) - len(reported)
}

func rank(h *match.Hook) int {
	if h.FailsClosed() {
		return 0
	}
	return 1
}

// reportUnseen are the clusters with hooks whose entries the mesh does not keep, and of whose entries nothing was seen, for the report.
func reportUnseen(c *store.Configuration, seen []dispatcher.EntryDrift) (unseen []string) {
	for key, o := range c.Objects {
		if o.Cluster == nil || o.Cluster.Spec.Registration != nil || c.Snapshot() == nil ||
			slices.ContainsFunc(seen, func(d dispatcher.EntryDrift) bool { return d.Cluster == key.Name }) ||
			!slices.ContainsFunc(c.Snapshot().Hooks(), func(h *match.Hook) bool { return h.Serves(key.Name) }) {
			continue
		}
		unseen = append(unseen, key.Name)
	}
	slices.Sort(unseen)
	return unseen[:min(len(unseen), maxDrifts)]
}

// reportDrifts are the entries that do not fit for the report.
func reportDrifts(all []dispatcher.EntryDrift) []etcdstore.EntryDrift {
	var reported []etcdstore.EntryDrift
	for _, d := range all {
		if !d.Any() || len(reported) == maxDrifts {
			continue
		}
		t := etcdstore.EntryDrift{Cluster: d.Cluster, Gone: d.Gone, Bypass: d.Bypass}
		for _, h := range d.Unplanned[:min(len(d.Unplanned), maxUnplanned)] {
			t.Unplanned = append(t.Unplanned, etcdstore.HookName{Object: config.KeyOf(h).String(), Hook: h.ID.Name})
		}
		t.UnplannedMore = len(d.Unplanned) - len(t.Unplanned)
		reported = append(reported, t)
	}
	return reported
}

// behind is a cluster whose entries may not match the configuration, or whose API servers may still call by older entries.
type behind struct {
	cluster, why string
	failed       bool          // the last attempt
	unread       bool          // nothing is known of them
	lacking      []*match.Hook // hooks of the configuration whose requests may be missing from the entries
}

// entriesBehind are all such clusters, by name: first those whose entries the mesh is about to write.
func entriesBehind(c *store.Configuration, known []keeper.State) []behind {
	states := make(map[string]keeper.State, len(known))
	for _, s := range known {
		states[s.Cluster] = s
	}
	snapshot := c.Snapshot()
	var all []behind
	for _, o := range c.Objects {
		if o.Cluster == nil || o.Cluster.Spec.Registration == nil {
			continue
		}
		s, ok := states[o.Name] // a cluster without a state was not compared
		b := behind{cluster: o.Name, why: s.Behind(c.Digest), failed: s.Err != nil, unread: !ok || !s.Read()}
		if !b.unread && snapshot != nil {
			b.lacking = s.Lacking(snapshot)
		}
		if b.why == "" && len(b.lacking) > 0 {
			b.why = fmt.Sprintf("they are written, and written once more %v later, since an API server can miss a change", touch.Delay)
		}
		if b.why != "" {
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b behind) int {
		if a.failed != b.failed {
			if b.failed {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.cluster, b.cluster)
	})
	return all
}

// brings reports whether the entries are known to bring the requests of a hook.
func (b *behind) brings(h *match.Hook) bool {
	if !h.Serves(b.cluster) {
		return true
	}
	return !b.unread && !slices.ContainsFunc(b.lacking, func(l *match.Hook) bool { return l.ID == h.ID })
}

// reportBehind are the first of them for the report, and the names of the others.
func reportBehind(all []behind) (reported []etcdstore.EntriesBehind, more []string) {
	for _, b := range all[min(len(all), maxBehind):] {
		more = append(more, b.cluster)
	}
	for _, b := range all[:min(len(all), maxBehind)] {
		r := etcdstore.EntriesBehind{
			Cluster: b.cluster, Message: strings.ToValidUTF8(b.why[:min(len(b.why), maxBehindMessage)], ""), Failed: b.failed, Unread: b.unread,
		}
		for _, h := range b.lacking {
			r.Lacking = append(r.Lacking, config.KeyOf(h).String())
		}
		r.Lacking = slices.Compact(slices.Sorted(slices.Values(r.Lacking)))
		if r.LackingMore = len(r.Lacking) - maxLacking; r.LackingMore > 0 {
			r.Lacking = r.Lacking[:maxLacking]
		}
		r.LackingMore = max(0, r.LackingMore)
		reported = append(reported, r)
	}
	return reported, more
}

// reportWider are the entries that bring more requests than planned, for the report.
func reportWider(known []keeper.State) (reported []etcdstore.EntriesWider) {
	for i := range known {
		for _, why := range known[i].Wider {
			if len(reported) < maxBehind {
				message := strings.ToValidUTF8(why[:min(len(why), maxBehindMessage)], "")
				reported = append(reported, etcdstore.EntriesWider{Cluster: known[i].Cluster, Message: message})
			}
		}
	}
	return reported
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
