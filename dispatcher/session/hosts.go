package session

import (
	"cmp"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/pool"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// HostState is whether a session takes calls.
type HostState int

// The states of a session. The first that holds counts.
const (
	// HostDraining: it takes no new calls, since the host or the dispatcher leaves, or another session is in its place.
	HostDraining HostState = iota + 1
	// HostNotGranted: no HookRoute grants the identity a hook that the host offers.
	HostNotGranted
	// HostSilent: nothing has come from the host for so long that calls go to others.
	HostSilent
	// HostNoSlots: the host takes no calls at present.
	HostNoSlots
	// HostPending: none of its hooks is in rotation yet.
	HostPending
	// HostServing: it takes calls.
	HostServing
)

// HostStatus is a session at one moment.
type HostStatus struct {
	// Session names it, and Identity is the identity in the host's certificate.
	Session, Identity string
	// Name, Instance, SDK and Zone come from its Hello.
	Name, Instance, SDK, Zone string
	// Hooks are those that it serves, in the order of the configuration.
	Hooks []*match.Hook
	// State is whether it takes calls; Used of its Slots are taken.
	State       HostState
	Used, Slots int
	// Connected is when it was taken in.
	Connected time.Time
	// P50 and P99 are percentiles of its latest calls; zero without calls.
	P50, P99 time.Duration
}

// HostPage asks for some of the sessions.
type HostPage struct {
	// Hook asks only for sessions that serve a hook of this name; empty means all.
	Hook string
	// After is the session behind which the page begins; empty for the first page.
	After string
	// Limit is the most sessions of the page.
	Limit int
}

// Hosts are the sessions of a page, in the order of their names, and whether others follow. It holds the lock of the router
// while it copies pointers to all sessions, and the lock of each session of the page for a moment.
func (r *Router) Hosts(page HostPage) (hosts []HostStatus, more bool) {
	v, now := r.hooks.Load(), time.Now()
	found := slices.DeleteFunc(r.all(), func(s *hostSession) bool {
		return s.ID() <= page.After || page.Hook != "" && !s.servesNamed(page.Hook)
	})
	slices.SortFunc(found, func(a, b *hostSession) int { return cmp.Compare(a.ID(), b.ID()) })
	more = len(found) > page.Limit
	for _, s := range found[:min(len(found), page.Limit)] {
		hosts = append(hosts, s.status(v, now))
	}
	return hosts, more
}

// Offers reports whether a connected host offers a hook and may serve it by its route, which need not be in force.
func (r *Router) Offers(h *match.Hook) bool {
	v, offer := r.hooks.Load(), offerOf(h)
	r.mu.Lock()
	offering := r.index.offering(map[pool.Digest]pool.Offer{v.digests.Offer(offer): offer})
	r.mu.Unlock()
	grant := grantOf(h)
	for s := range offering {
		if grant.Includes(s.Peer) && !s.Standing().Leaving {
			return true
		}
	}
	return false
}

// latestOfIdentity is how many sessions of an identity Offerings looks at, the latest ones: replicas offer the same hooks.
const latestOfIdentity = 8

// Offering is an identity of connected hosts, and hooks that the hosts offer.
type Offering struct {
	// Peer is the identity.
	Peer identity.Peer
	// Hooks are at least one.
	Hooks []*match.Hook
}

// Offerings returns which of these hooks the hosts of each identity offer, whether or not a route grants them, fewest hooks first.
func (r *Router) Offerings(hooks []*match.Hook) (out []Offering) {
	latest := map[*tenant][]*hostSession{}
	for _, s := range r.all() {
		if s.Standing().Leaving {
			continue
		}
		of := latest[s.tenant]
		of = append(of, s)
		if len(of) > latestOfIdentity {
			slices.SortFunc(of, func(a, b *hostSession) int { return cmp.Or(b.joined.Compare(a.joined), cmp.Compare(a.ID(), b.ID())) })
			of = of[:latestOfIdentity]
		}
		latest[s.tenant] = of
	}
	if len(latest) == 0 {
		return nil
	}
	digests := r.hooks.Load().digests
	byOffer := make(map[pool.Digest][]*match.Hook, len(hooks))
	for _, h := range hooks {
		d := digests.Offer(offerOf(h))
		byOffer[d] = append(byOffer[d], h)
	}
	for t, sessions := range latest {
		x, offered := Offering{Peer: t.peer}, map[pool.Digest]bool{}
		for _, s := range sessions {
			for _, o := range s.Hello.Offers {
				if of := byOffer[o.Digest]; of != nil && !offered[o.Digest] {
					offered[o.Digest], x.Hooks = true, append(x.Hooks, of...)
				}
			}
		}
		if len(x.Hooks) > 0 {
			slices.SortFunc(x.Hooks, func(a, b *match.Hook) int { return cmp.Compare(a.Ordinal(), b.Ordinal()) })
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b Offering) int {
		return cmp.Or(cmp.Compare(len(a.Hooks), len(b.Hooks)), cmp.Compare(a.Peer.Name(), b.Peer.Name()),
			slices.Compare(a.Peer.Authorities(), b.Peer.Authorities()))
	})
	return out
}

// servesNamed reports whether a session serves a hook of a name.
func (s *hostSession) servesNamed(name string) bool {
	for p := range s.Memberships() {
		if p.Hook().ID.Name == name {
			return true
		}
	}
	return false
}

func (s *hostSession) status(v *hookTable, now time.Time) HostStatus {
	standing := s.Standing()
	out := HostStatus{
		Session: s.ID(), Identity: s.Peer.Name(), Name: s.about.name, Instance: s.Instance(), SDK: s.about.sdk, Zone: s.about.zone,
		Used: standing.Used, Slots: standing.Credit, Connected: s.joined,
	}
	out.P50, out.P99 = s.Percentiles()
	pending := true
	for p := range s.Memberships() {
		if !v.removedHook(p) {
			out.Hooks = append(out.Hooks, p.Hook())
			pending = pending && v.pending[p] != nil
		}
	}
	slices.SortFunc(out.Hooks, func(a, b *match.Hook) int { return cmp.Compare(a.Ordinal(), b.Ordinal()) })
	switch {
	case standing.Leaving:
		out.State = HostDraining
	case len(out.Hooks) == 0:
		out.State = HostNotGranted
	case s.Unresponsive(now):
		out.State = HostSilent
	case standing.Credit == 0:
		out.State = HostNoSlots
	case pending:
		out.State = HostPending
	default:
		out.State = HostServing
	}
	return out
}

// pendingOf is the state of the hosts of a pending hook.
func pendingOf(p *pool.Pool, h *match.Hook) *Pending {
	x := &Pending{Hook: h, Hosts: p.Size()}
	if c := p.ProbeAnswer(); c != nil {
		x.Host, x.Ready, x.Message = c.Replica.Peer.Name(), c.Ready, c.Message
	}
	return x
}
