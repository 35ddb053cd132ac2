package session

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/internal/wire"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/pool"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// Update makes the hooks of a snapshot known, before it comes into force. Calls in flight finish, and hooks that it does not
// have any more are served for stream.MaxReview, by who was granted them. Snapshots have to come in the order in which they come
// into force. Beyond a look at each hook, and at each session where a
// hook came, went or is granted to others, the cost grows with the changes alone: a host hears of hooks that came, went, or are granted
// to others, and of nothing else.
func (r *Router) Update(snapshot *match.Snapshot) {
	r.updateTable(func(c *tableUpdate) {
		c.next.revision, c.next.hosts = snapshot.Revision(), make(map[grantKey]bool, len(c.old.hosts))
		for _, h := range snapshot.Hooks() {
			if h.Route.Stream {
				c.serveHook(h, &r.queued)
			}
		}
	})
}

// forgetRemoved drops the hooks that no review can call any more.
func (r *Router) forgetRemoved() {
	r.updateTable((*tableUpdate).keepHooks)
}

// UpdateClusters says which clusters may send reviews, by name, in any order. Where more than one may use a session, none
// takes more than its share of the slots; until the first call there is one at most. Calls in flight are left alone.
func (r *Router) UpdateClusters(names []string) {
	names = slices.Sorted(slices.Values(names))
	if slices.Equal(names, r.hooks.Load().clusters) {
		return
	}
	r.updateTable(func(c *tableUpdate) {
		c.keepHooks()
		c.next.clusters, c.reaches = names, true
	})
}

// updateTable puts another table in place, and tells sessions, calls and hosts that it concerns.
func (r *Router) updateTable(hooks func(*tableUpdate)) {
	r.mu.Lock()
	c := newTableUpdate(r.hooks.Load(), time.Now())
	hooks(c)
	c.seedFrom()
	r.index.regrant(c.next, c.now)
	r.hooks.Store(c.next)
	concerned := r.index.offering(c.offers)
	for s := range concerned {
		r.assignPools(s, c.next, c.now)
		s.Join()
	}
	if c.reaches {
		for _, s := range r.index.sessions {
			s.share(c.next)
		}
	}
	r.mu.Unlock()
	for _, p := range c.dropped {
		p.Abandon()
	}
	if r.queued.Load() > 0 {
		for _, p := range c.next.pools {
			p.ServeWaiting(c.now)
		}
	}
	for s := range concerned {
		r.announce(s, c.offers)
		s.probePending()
	}
}

// assignPools makes a session leave the pools that it may not serve any more, and gives it memberships of those that it may
// serve from now on: join puts them in force. The router's lock is held.
func (r *Router) assignPools(s *hostSession, v *hookTable, now time.Time) {
	before, mine := s.Memberships(), make(map[*pool.Pool]*pool.Member)
	for _, o := range s.Hello.Offers {
		for _, p := range v.byOffer[o.Digest] {
			if mine[p] != nil || !mayServe(p, s.Peer) {
				continue
			}
			if mine[p] = before[p]; mine[p] == nil {
				mine[p] = pool.NewMember(&s.Replica, o.Speculates)
			}
		}
	}
	s.SetMemberships(mine, r.absentFrom(now))
	s.share(v)
}

// mayServe reports whether the route of a pool's hook lets a host serve it.
func mayServe(p *pool.Pool, peer identity.Peer) bool { return grantOf(p.Hook()).Includes(peer) }

func grantOf(h *match.Hook) identity.Grant {
	return identity.Grant{Names: h.Route.Hosts, Authorities: h.Route.Authorities}
}

// ungranted returns the reason why a peer may not serve any of the hooks.
func ungranted(pools []*pool.Pool, peer identity.Peer) string {
	if slices.ContainsFunc(pools, func(p *pool.Pool) bool { return slices.Contains(p.Hook().Route.Hosts, peer.Name()) }) {
		return "the HookRoute lists identity " + peer.Name() + " in spec.hosts, and in spec.authorities none of its authorities: " +
			strings.Join(peer.Authorities(), ", ")
	}
	return "no HookRoute lists identity " + peer.Name() + " in spec.hosts"
}

// hookState is how a hook stands that a session offers.
func (r *Router) hookState(s *hostSession, o pool.Offer) *hostv1.HookState {
	v, mine := r.hooks.Load(), s.Memberships()
	state := &hostv1.HookState{Name: o.Name, Stage: o.Stage, Revision: v.revision}
	pools := v.offered(o)
	granted := slices.ContainsFunc(pools, func(p *pool.Pool) bool { return mine[p] != nil })
	switch {
	case len(pools) == 0:
		state.State = hostv1.State_STATE_UNKNOWN_HOOK
		state.Message = "no configuration has a webhook of this name and stage with a HookRoute that says stream"
	case !granted:
		state.State = hostv1.State_STATE_NOT_AUTHORIZED
		state.Message = ungranted(pools, s.Peer)
	case v.removedHook(pools[0]):
		state.State = hostv1.State_STATE_REMOVING
		state.Message = "the hook was removed: reviews that have begun may still ask it"
	case !slices.ContainsFunc(pools, func(p *pool.Pool) bool { return mine[p] != nil && v.pending[p] == nil }):
		state.State = hostv1.State_STATE_PENDING
		state.Message = "the hook is new: it is asked for verdicts once a host has answered its probe"
	default:
		state.State = hostv1.State_STATE_IN_ROTATION
		if slices.ContainsFunc(pools, func(p *pool.Pool) bool { return mine[p].Declines(p.Hook()) }) {
			state.Message = "its HookRoute says speculate, and the host does not agree: it offers the hook without speculate"
		}
	}
	return state
}

// UpdatePeers sets the other dispatchers for hosts to dial, in any order. The router keeps the list, which is not
// changed any more. If it differs from the one before, each connected host gets a Welcome with it.
func (r *Router) UpdatePeers(peers []*hostv1.Peer) {
	peers = slices.SortedFunc(slices.Values(peers), func(a, b *hostv1.Peer) int { return cmp.Compare(a.GetDispatcherId(), b.GetDispatcherId()) })
	r.mu.Lock()
	same := slices.EqualFunc(peers, r.peers, func(a, b *hostv1.Peer) bool { return proto.Equal(a, b) })
	r.peers = peers
	r.mu.Unlock()
	if same {
		return
	}
	for _, s := range r.all() {
		s.Send(r.welcome(s, nil, peers))
	}
}

// welcome is the first frame for a host, and without offers a later frame with the peers anew.
func (r *Router) welcome(s *hostSession, offers []pool.Offer, peers []*hostv1.Peer) *hostv1.ConnectResponse {
	w := &hostv1.Welcome{
		SessionId:       s.ID(),
		DispatcherId:    r.id,
		Protocol:        Protocol,
		Revision:        r.hooks.Load().revision,
		PingIntervalMs:  wire.Milliseconds(stream.PingInterval),
		SilenceMs:       wire.Milliseconds(stream.HostSilence),
		MaxVerdictBytes: stream.MaxVerdictBytes,
		Capabilities:    []string{stream.CapabilityBatches},
		Peers:           peers,
	}
	for _, o := range offers {
		w.Hooks = append(w.Hooks, r.hookState(s, o))
	}
	return &hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Welcome{Welcome: w}}
}

// announce tells a host the state of each of its hooks that has changed.
func (r *Router) announce(s *hostSession, changed map[pool.Digest]pool.Offer) {
	for _, o := range s.Hello.Among(changed) {
		state := r.hookState(s, o)
		if state.GetState() == hostv1.State_STATE_UNKNOWN_HOOK { // which it was not before
			state.State, state.Message = hostv1.State_STATE_REMOVED, "no configuration has the hook any more, or it is not served over streams"
		}
		s.Send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_HookState{HookState: state}})
	}
}

// addSession takes a session in that offers hooks. A second session of the same process replaces the first, whose calls finish where they are.
func (r *Router) addSession(s *hostSession, offers []pool.Offer) error {
	r.mu.Lock()
	if r.draining {
		r.mu.Unlock()
		return ErrClosed
	}
	replaced := slices.Clone(r.index.instances[processOf(s)])
	v, now := r.hooks.Load(), time.Now()
	granted := v.grants(s.Peer)
	if err := r.index.admit(s.Peer, granted, len(replaced) > 0); err != nil {
		r.mu.Unlock()
		return err
	}
	r.index.addSession(s, granted, now)
	if r.found.IsZero() {
		r.found = now
	}
	r.assignPools(s, v, now)
	s.Send(r.welcome(s, offers, r.peers))
	s.Join()
	for _, other := range replaced {
		r.leaveAllPools(other, now)
	}
	r.mu.Unlock()
	s.probePending()
	for _, other := range replaced {
		other.Replace()
	}
	s.SlotsFreed()
	return nil
}

func (r *Router) removeSession(s *hostSession) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.index.removeSession(s) {
		return
	}
	r.leaveAllPools(s, time.Now())
}

// leaveAllPools removes a session from its pools for good. The router's lock is held.
func (r *Router) leaveAllPools(s *hostSession, now time.Time) {
	s.SetMemberships(map[*pool.Pool]*pool.Member{}, r.absentFrom(now))
}
