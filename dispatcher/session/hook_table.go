package session

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/pool"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// hookTable is the hooks that sessions can serve: the hooks of one snapshot, and the hooks of earlier snapshots that reviews may still
// call. It never changes once it is in place.
type hookTable struct {
	revision string
	pools    map[match.HookID]*pool.Pool
	byHook   map[*match.Hook]*pool.Pool // the hooks of pools, as the snapshot has them
	byOffer  map[pool.Digest][]*pool.Pool
	digests  pool.Digests               // of byOffer
	removed  map[match.HookID]time.Time // since when the snapshot has no such hook
	pending  map[*pool.Pool]*match.Hook // that are not in rotation yet
	clusters []string                   // that may send reviews
	hosts    map[grantKey]bool          // who hooks are granted to; nil before the first configuration
}

// grantKey is an identity that a hook is granted to, and an authority that may vouch for it; "" where any may.
type grantKey struct{ name, authority string }

// grants reports whether a hook is granted to a peer. It is true before the first configuration: a restarted
// dispatcher does not refuse its hosts.
func (v *hookTable) grants(peer identity.Peer) bool {
	return v.hosts == nil || v.hosts[grantKey{name: peer.Name()}] || slices.ContainsFunc(peer.Authorities(), func(authority string) bool {
		return v.hosts[grantKey{peer.Name(), authority}]
	})
}

func newHookTable(d pool.Digests) *hookTable {
	return &hookTable{
		digests: d, pools: map[match.HookID]*pool.Pool{}, byHook: map[*match.Hook]*pool.Pool{}, byOffer: map[pool.Digest][]*pool.Pool{},
		removed: map[match.HookID]time.Time{}, pending: map[*pool.Pool]*match.Hook{},
	}
}

// Pool is the pool of a hook; nil when hosts may not serve it. Reviews under an earlier snapshot have hooks of their own,
// which take a little longer to find.
func (v *hookTable) Pool(h *match.Hook) *pool.Pool {
	if p := v.byHook[h]; p != nil {
		return p
	}
	return v.pools[h.ID]
}

func (v *hookTable) expired(now time.Time) bool {
	for _, since := range v.removed {
		if now.Sub(since) >= stream.MaxReview {
			return true
		}
	}
	return false
}

// removedHook reports whether the snapshot has no such hook any more.
func (v *hookTable) removedHook(p *pool.Pool) bool {
	_, removed := v.removed[p.Hook().ID]
	return removed
}

// offered are the pools that an offer is about: of the snapshot, or else of hooks that are gone.
func (v *hookTable) offered(o pool.Offer) []*pool.Pool {
	all := v.byOffer[v.digests.Offer(o)]
	if len(v.removed) == 0 {
		return all
	}
	current := slices.DeleteFunc(slices.Clone(all), v.removedHook)
	if len(current) > 0 {
		return current
	}
	return all
}

// severalClusters reports whether reviews of more than one cluster may come to a session.
func (v *hookTable) severalClusters(s *pool.Replica) bool {
	n := 0
	for _, cluster := range v.clusters {
		if s.Takes(cluster) && s.Serves(cluster) {
			n++
		}
		if n > 1 {
			return true
		}
	}
	return false
}

func offerOf(h *match.Hook) pool.Offer { return pool.Offer{Name: h.ID.Name, Stage: h.ID.Stage} }

// tableUpdate makes the next table of one. As long as no hook comes or goes, they share the maps of pools.
type tableUpdate struct {
	now       time.Time
	old, next *hookTable
	copied    bool                       // next has maps of its own
	hosts     []string                   // of the last hook that was taken in
	vouching  []string                   // likewise: the authorities
	reaches   bool                       // a hook or more is for other clusters, or there are others
	offers    map[pool.Digest]pool.Offer // that mean something else now
	dropped   []*pool.Pool               // that no review can call any more
}

func newTableUpdate(old *hookTable, now time.Time) *tableUpdate {
	return &tableUpdate{now: now, old: old, offers: map[pool.Digest]pool.Offer{}, next: &hookTable{
		revision: old.revision, pools: old.pools, byOffer: old.byOffer, digests: old.digests,
		byHook: make(map[*match.Hook]*pool.Pool, len(old.byHook)), removed: map[match.HookID]time.Time{},
		pending: map[*pool.Pool]*match.Hook{}, clusters: old.clusters,
	}}
}

func (c *tableUpdate) keepHooks() {
	c.next.pending = c.old.pending
	if c.old.hosts != nil {
		c.next.hosts = make(map[grantKey]bool, len(c.old.hosts))
	}
	for id, p := range c.old.pools {
		if _, removed := c.old.removed[id]; !removed {
			c.next.byHook[p.Hook()] = p
			c.grant(p.Hook())
		}
	}
}

// grant takes in the identities that a hook is granted to. Hooks in a row mostly have the same.
func (c *tableUpdate) grant(h *match.Hook) {
	if c.next.hosts == nil || slices.Equal(c.hosts, h.Route.Hosts) && slices.Equal(c.vouching, h.Route.Authorities) {
		return
	}
	c.hosts, c.vouching = h.Route.Hosts, h.Route.Authorities
	for _, name := range c.hosts {
		if len(c.vouching) == 0 {
			c.next.hosts[grantKey{name: name}] = true
		}
		for _, authority := range c.vouching {
			c.next.hosts[grantKey{name, authority}] = true
		}
	}
}

// cloneMaps copies the maps, so that they may be changed; their values may not.
func (c *tableUpdate) cloneMaps() {
	if !c.copied {
		c.next.pools, c.next.byOffer, c.copied = maps.Clone(c.old.pools), maps.Clone(c.old.byOffer), true
	}
}

// announceHook makes the update announce a hook to the hosts that offer it.
func (c *tableUpdate) announceHook(h *match.Hook) {
	o := offerOf(h)
	c.offers[c.old.digests.Offer(o)] = o
}

func (c *tableUpdate) addPool(h *match.Hook, p *pool.Pool) {
	c.cloneMaps()
	c.next.pools[h.ID] = p
	o := c.old.digests.Offer(offerOf(h))
	c.next.byOffer[o] = append(slices.Clip(c.next.byOffer[o]), p)
}

func (c *tableUpdate) dropPool(h *match.Hook, p *pool.Pool) {
	c.cloneMaps()
	delete(c.next.pools, h.ID)
	o := c.old.digests.Offer(offerOf(h))
	left := slices.DeleteFunc(slices.Clone(c.next.byOffer[o]), func(x *pool.Pool) bool { return x == p })
	if c.next.byOffer[o] = left; len(left) == 0 {
		delete(c.next.byOffer, o)
	}
	c.dropped = append(c.dropped, p)
}

// serveHook takes in a hook of the snapshot.
func (c *tableUpdate) serveHook(h *match.Hook, allWaits *atomic.Int64) {
	p := c.old.pools[h.ID]
	_, back := c.old.removed[h.ID]
	if p == nil {
		p = pool.New(allWaits, c.now)
		c.addPool(h, p)
	}
	before := p.Hook()
	begins := before == nil || back || before.Pending != h.Pending
	if begins || before.Route.Speculate != h.Route.Speculate || !slices.Equal(before.Route.Hosts, h.Route.Hosts) ||
		!slices.Equal(before.Route.Authorities, h.Route.Authorities) {
		c.announceHook(h)
	}
	if !begins && !slices.Equal(before.Route.Clusters, h.Route.Clusters) {
		c.reaches = true
	}
	if begins {
		p.ForgetAnswer()
	}
	if h.Pending {
		c.next.pending[p] = h
	}
	p.Configure(h)
	c.grant(h)
	c.next.byHook[h] = p
}

// seedFrom takes in the pools of hooks that are no longer there, while reviews may call them.
func (c *tableUpdate) seedFrom() {
	if len(c.next.byHook) == len(c.next.pools) {
		return // all are there
	}
	for id, p := range c.old.pools {
		h := p.Hook()
		if c.next.byHook[h] != nil {
			continue
		}
		since, before := c.old.removed[id]
		if !before {
			since = c.now
		}
		over := c.now.Sub(since) >= stream.MaxReview
		if over {
			c.dropPool(h, p)
		} else {
			c.next.byHook[h], c.next.removed[id] = p, since
			c.grant(h)
		}
		if !before || over {
			c.announceHook(h)
		}
	}
}
