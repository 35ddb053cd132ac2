package serve

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/session"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cluster/keeper"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// Bounds on the report of one dispatcher to the others. The rest is counted.
const (
	maxPending        = 64       // pending hooks
	maxPendingMessage = 256      // bytes of the message of a host about one
	maxUnserved       = 64       // hooks without a host
	maxDrifts         = 64       // clusters whose entries do not fit
	maxUnplanned      = 4        // hooks of each of them
	maxBehind         = 64       // clusters whose entries are not written yet; the others are named
	maxBehindMessage  = 512      // bytes of the reason
	maxLacking        = 16       // configurations whose requests the entries of each of them do not bring
	maxConnectedBytes = 32 << 10 // of the hosts that are connected, and of the names of the hooks that they offer
	maxFollows        = 64       // clusters whose objects this dispatcher follows
	maxFollowed       = 8        // objects of each of them that are not followed
	maxFollowMessage  = 512      // bytes of the reason
)

// reportOf is the report of this dispatcher about a configuration.
func (a *controlPlane) reportOf(c *store.Configuration) *configv1.DispatcherReport {
	drifts, kept := a.judge.EntryDrifts(c.Snapshot()), a.kept()
	var hooks []*match.Hook
	if s := c.Snapshot(); s != nil {
		hooks = s.Hooks()
	}
	r := &configv1.DispatcherReport{
		Status: a.status(c), Pending: pendingHooks(a.hosts.Pending()), EntryDrifts: reportDrifts(drifts), EntriesUnseen: reportUnseen(c.Objects, hooks, drifts),
		EntriesWider: reportWider(kept), Follows: reportFollows(a.follows()),
	}
	r.Unserved, r.UnservedMore = unservedHooks(a.hosts.Unserved())
	r.EntriesBehind, r.EntriesBehindMore = reportBehind(entriesBehind(c, kept))
	if age := c.MaxAge(); age > 0 {
		r.MaxConfigurationAge = durationpb.New(age)
	}
	return r
}

func (a *controlPlane) status(c *store.Configuration) *configv1.DispatcherStatus {
	now := time.Now()
	s := &configv1.DispatcherStatus{
		DispatcherId: a.id, Addresses: a.advertised, Version: cli.Version(), Judging: c.Judging, Said: timestamppb.New(now),
		Applied: &configv1.Revision{Digest: c.Digest, Sources: c.Sources}, ConfigAgeMs: uint32(max(now.Sub(c.Begun).Milliseconds(), 0)),
		Held: cmp.Or(a.live.Held()[etcdstore.SourceName], "0"),
	}
	if p := a.live.Permitted(); p != nil {
		s.ServesStaleUntil = timestamppb.New(p.Until)
	}
	for _, key := range c.Diverging() {
		s.Diverging = append(s.Diverging, key.String())
	}
	return s
}

// pendingHooks are the pending hooks for the report.
func pendingHooks(all []session.Pending) []*configv1.PendingHook {
	var out []*configv1.PendingHook
	for _, p := range all[:min(len(all), maxPending)] {
		reason, message := whyPending(&p)
		out = append(out, &configv1.PendingHook{Object: config.KeyOf(p.Hook).String(), Hook: p.Hook.ID.Name, Reason: reason, Message: message})
	}
	return out
}

// whyPending is why a hook is pending, for programs and for people.
func whyPending(p *session.Pending) (reason, message string) {
	switch {
	case p.Ready:
		return etcdstore.PendingReady, p.Host + " is ready, and the store is about to be told"
	case p.Host != "":
		return etcdstore.PendingNotReady, fmt.Sprintf("%s is not ready: %s", p.Host, quoted(p.Message, maxPendingMessage))
	case p.Hosts > 0:
		return etcdstore.PendingUnanswered, "the host has not answered yet"
	case len(p.Hook.Route.Hosts) == 0:
		return etcdstore.PendingNobody, "name the identities of its hosts in spec.hosts of a HookRoute"
	default:
		return etcdstore.PendingMissing, "no host that may serve it is connected"
	}
}

// quoted is a text of others for a report, such as an error of an API server: without secrets, safe to print, and of at most so many bytes. Every
// message of a report is quoted.
func quoted(text string, most int) string {
	text = printer.Text(identity.Redact(text)) // first: half a secret is not recognized
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// unservedHooks are the hooks without a host for the report, those that refuse requests first.
func unservedHooks(all []*match.Hook) (reported []*configv1.HookName, more uint32) {
	slices.SortStableFunc(all, func(a, b *match.Hook) int { return cmp.Compare(rank(a), rank(b)) })
	reported = hookNames(all[:min(len(all), maxUnserved)])
	return reported, uint32(len(all) - len(reported))
}

// reportConnected are the connected hosts for the report, up to the first that does not fit.
func reportConnected(all []session.Offering) *configv1.ConnectedHosts {
	out, size := &configv1.ConnectedHosts{}, 0
	for _, x := range all {
		hosts := &configv1.HostOffers{Identity: x.Peer.Name(), Authorities: x.Peer.Authorities(), Hooks: hookNames(x.Hooks)}
		if size += proto.Size(hosts); size > maxConnectedBytes {
			out.More = true
			break
		}
		out.Hosts = append(out.Hosts, hosts)
	}
	return out
}

func hookNames(all []*match.Hook) (names []*configv1.HookName) {
	for _, h := range all {
		names = append(names, &configv1.HookName{Object: config.KeyOf(h).String(), Hook: h.ID.Name})
	}
	return names
}

func rank(h *match.Hook) int {
	if h.FailsClosed() {
		return 0
	}
	return 1
}

// reportUnseen are the first clusters with hooks whose entries the mesh does not keep, and of whose entries nothing was seen, for the report.
func reportUnseen(objects map[config.Key]config.Object, hooks []*match.Hook, drifts []dispatcher.EntryDrift) (unseen []string) {
	everywhere, served, seen := false, map[string]bool{}, map[string]bool{}
	for _, h := range hooks {
		clusters := h.Route.Clusters
		if h.ID.Scope != "" {
			clusters = []string{h.ID.Scope}
		}
		everywhere = everywhere || len(clusters) == 0
		for _, name := range clusters {
			served[name] = served[name] || h.Serves(name)
		}
	}
	for i := range drifts {
		seen[drifts[i].Cluster] = true
	}
	for key, o := range objects {
		if o.Cluster != nil && o.Cluster.Spec.Registration == nil && !seen[key.Name] && (everywhere || served[key.Name]) {
			unseen = append(unseen, key.Name)
		}
	}
	slices.Sort(unseen)
	return unseen[:min(len(unseen), maxDrifts)]
}

// reportDrifts are the entries that do not fit for the report.
func reportDrifts(all []dispatcher.EntryDrift) []*configv1.EntryDrift {
	var reported []*configv1.EntryDrift
	for _, d := range all {
		if !d.Any() || len(reported) == maxDrifts {
			continue
		}
		named := d.Unplanned[:min(len(d.Unplanned), maxUnplanned)]
		reported = append(reported, &configv1.EntryDrift{
			Cluster: d.Cluster, Gone: uint32(d.Gone), Bypass: d.Bypass, Unplanned: hookNames(named), UnplannedMore: uint32(len(d.Unplanned) - len(named)),
		})
	}
	return reported
}

// entriesBehind are the clusters whose entries are not in sync with a configuration.
func entriesBehind(c *store.Configuration, known []keeper.State) []keeper.Behind {
	var kept []string
	for _, o := range c.Objects {
		if o.Cluster != nil && o.Cluster.Spec.Registration != nil {
			kept = append(kept, o.Name)
		}
	}
	return keeper.OutOfSync(kept, known, c.Snapshot(), c.Digest)
}

// reportBehind are the first of them for the report, and the names of the others.
func reportBehind(all []keeper.Behind) (reported []*configv1.EntriesBehind, more []string) {
	for _, b := range all[min(len(all), maxBehind):] {
		more = append(more, b.Cluster)
	}
	for _, b := range all[:min(len(all), maxBehind)] {
		r := &configv1.EntriesBehind{
			Cluster: b.Cluster, Message: quoted(b.Why, maxBehindMessage), Failed: b.Failed, Unread: b.Unread,
		}
		for _, h := range b.Lacking {
			r.Lacking = append(r.Lacking, config.KeyOf(h).String())
		}
		lacking := slices.Compact(slices.Sorted(slices.Values(r.GetLacking())))
		r.Lacking = lacking[:min(len(lacking), maxLacking)]
		r.LackingMore = uint32(len(lacking) - len(r.GetLacking()))
		reported = append(reported, r)
	}
	return reported, more
}

// reportWider are the entries that bring more requests than planned, for the report.
func reportWider(known []keeper.State) (reported []*configv1.EntriesWider) {
	for i := range known {
		for _, why := range known[i].Wider {
			if len(reported) < maxBehind {
				reported = append(reported, &configv1.EntriesWider{Cluster: known[i].Cluster, Message: quoted(why, maxBehindMessage)})
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
