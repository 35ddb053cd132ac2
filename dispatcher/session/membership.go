package session

import (
	"slices"
	"strings"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/identity"
)

// roster is the sessions of a registry, by what they are looked for.
type roster struct {
	sessions  map[string]*Session // by id
	instances map[process][]*Session
	tenants   map[identity.Peer]*tenant
	inTurn    [turns]map[*Session]struct{} // by when they are looked after
	joined    int                          // how many have ever been taken in
	ungranted int                          // processes of identities that no hook is granted to
}

// process is what may have one session at a time.
type process struct {
	peer     identity.Peer
	instance string
}

func newRoster() roster {
	r := roster{
		sessions: map[string]*Session{}, instances: map[process][]*Session{}, tenants: map[identity.Peer]*tenant{},
	}
	for turn := range r.inTurn {
		r.inTurn[turn] = map[*Session]struct{}{}
	}
	return r
}

// processOf is who is at the other end of a session.
func processOf(s *Session) process { return process{s.peer, s.instance} }

// add takes a session in.
func (r *roster) add(s *Session, granted bool, now time.Time) {
	r.sessions[s.id] = s
	s.tenant, s.joined = r.tenantOf(s.peer, granted, now), now
	s.turn = r.joined % turns
	r.joined++
	r.inTurn[s.turn][s] = struct{}{}
	key := processOf(s)
	if len(r.instances[key]) == 0 {
		r.count(s.tenant, 1)
	}
	r.instances[key] = append(r.instances[key], s)
}

// remove lets a session go. It returns false if it was not there.
func (r *roster) remove(s *Session) bool {
	if r.sessions[s.id] != s {
		return false
	}
	delete(r.sessions, s.id)
	delete(r.inTurn[s.turn], s)
	key := processOf(s)
	r.instances[key] = slices.DeleteFunc(r.instances[key], func(o *Session) bool { return o == s })
	if len(r.instances[key]) == 0 {
		delete(r.instances, key)
		r.count(s.tenant, -1)
	}
	return true
}

// current reports whether a session is the latest one of its process. Others finish what they have, and get nothing more.
func (r *roster) current(s *Session) bool {
	all := r.instances[processOf(s)]
	return len(all) > 0 && all[len(all)-1] == s
}

// concerned are the current sessions that offer any of the hooks.
func (r *roster) concerned(offers map[digest]offer) map[*Session]struct{} {
	out := map[*Session]struct{}{}
	if len(offers) == 0 {
		return out
	}
	for _, s := range r.sessions {
		if s.wishes.any(offers) && r.current(s) {
			out[s] = struct{}{}
		}
	}
	return out
}

// Update makes the hooks of a snapshot known, before it comes into force. Calls in flight finish, and hooks that it does not
// have any more are served for MaxReview, by who was granted them. Snapshots have to come in the order in which they come
// into force. Beyond a look at each hook, and at each session where a
// hook came, went or is granted to others, it costs what has changed: hosts are told of hooks that came, went, or are granted
// to others, and of nothing else.
func (r *Registry) Update(snapshot *match.Snapshot) {
	r.replace(func(c *change) {
		c.next.revision, c.next.hosts = snapshot.Revision(), make(map[grantKey]bool, len(c.old.hosts))
		for _, h := range snapshot.Hooks() {
			if h.Route.Stream {
				c.serve(r, h)
			}
		}
	})
}

// forgetRemoved lets go of the hooks that no review can call any more.
func (r *Registry) forgetRemoved() {
	r.replace((*change).keep)
}

// UpdateClusters says which clusters may send reviews, by name, in any order. Where more than one may use a session, none
// takes more than its share of the slots; until somebody says so there is one at most. Calls in flight are left alone.
func (r *Registry) UpdateClusters(names []string) {
	names = slices.Sorted(slices.Values(names))
	if slices.Equal(names, r.view.Load().clusters) {
		return
	}
	r.replace(func(c *change) {
		c.keep()
		c.next.clusters, c.reaches = names, true
	})
}

// replace puts another view in place, and tells sessions, calls and hosts that it concerns.
func (r *Registry) replace(hooks func(*change)) {
	r.mu.Lock()
	c := newChange(r.view.Load(), time.Now())
	hooks(c)
	c.inherit()
	r.roster.regrant(c.next, c.now)
	r.view.Store(c.next)
	concerned := r.roster.concerned(c.offers)
	for s := range concerned {
		for _, x := range r.assign(s, c.next, c.now) {
			x.pool.add(x, c.now)
		}
	}
	if c.reaches {
		for _, s := range r.roster.sessions {
			s.share(c.next)
		}
	}
	r.mu.Unlock()
	for _, p := range c.dropped {
		p.abandon()
	}
	if r.queued.Load() > 0 {
		for _, p := range c.next.pools {
			p.drain(c.now)
		}
	}
	for s := range concerned {
		r.announce(s, c.offers)
		r.pend(s)
	}
}

// assign makes a session leave the pools that it may not serve any more, and returns its memberships of those that it may
// serve from now on. The registry's lock is held.
func (r *Registry) assign(s *Session, v *view, now time.Time) (joins []*member) {
	before, mine := *s.pools.Load(), make(map[*pool]*member)
	for _, o := range s.wishes.offers {
		for _, p := range v.byOffer[o.digest] {
			if mine[p] != nil || !mayServe(p, s) {
				continue
			}
			if mine[p] = before[p]; mine[p] == nil {
				mine[p] = &member{pool: p, session: s, ahead: o.ahead}
				joins = append(joins, mine[p])
			}
		}
	}
	s.pools.Store(&mine) // first: what is picked for a pool belongs to it
	for p, x := range before {
		if mine[p] == nil {
			p.remove(x, now)
		}
	}
	s.share(v)
	return joins
}

// mayServe reports whether the route of a pool's hook lets a session serve it.
func mayServe(p *pool, s *Session) bool {
	route := &p.hook.Load().Route
	return identity.Grant{Names: route.Hosts, Authorities: route.Authorities}.Includes(s.peer)
}

// ungranted says why a peer may not serve any of the hooks.
func ungranted(pools []*pool, peer identity.Peer) string {
	if slices.ContainsFunc(pools, func(p *pool) bool { return slices.Contains(p.hook.Load().Route.Hosts, peer.Name()) }) {
		return "the HookRoute lists identity " + peer.Name() + " in spec.hosts, and in spec.authorities none of those that vouch for it: " +
			strings.Join(peer.Authorities(), ", ")
	}
	return "no HookRoute lists identity " + peer.Name() + " in spec.hosts"
}

// state is how a hook stands that a session offers.
func (r *Registry) state(s *Session, o offer) *hostv1.HookState {
	v, mine := r.view.Load(), *s.pools.Load()
	state := &hostv1.HookState{Name: o.name, Stage: o.hostStage(), Revision: v.revision}
	pools := v.offered(o)
	granted := slices.ContainsFunc(pools, func(p *pool) bool { return mine[p] != nil })
	switch {
	case len(pools) == 0:
		state.State = hostv1.State_STATE_UNKNOWN_HOOK
		state.Message = "no configuration has a webhook of this name and stage with a HookRoute that says stream"
	case !granted:
		state.State = hostv1.State_STATE_NOT_AUTHORIZED
		state.Message = ungranted(pools, s.peer)
	case v.gone(pools[0]):
		state.State = hostv1.State_STATE_REMOVING
		state.Message = "the hook was removed: reviews that have begun may still ask it"
	case !slices.ContainsFunc(pools, func(p *pool) bool { return mine[p] != nil && v.pending[p] == nil }):
		state.State = hostv1.State_STATE_PENDING
		state.Message = "the hook is new: it is asked for verdicts once a host has answered its probe"
	default:
		state.State = hostv1.State_STATE_IN_ROTATION
		if slices.ContainsFunc(pools, func(p *pool) bool { return mine[p].declines(p.hook.Load()) }) {
			state.Message = "its HookRoute says speculate, and the host does not agree: it offers the hook without speculate"
		}
	}
	return state
}

// welcome is the first frame for a host.
func (r *Registry) welcome(s *Session, offers []offer) *hostv1.ConnectResponse {
	w := &hostv1.Welcome{
		SessionId:       s.id,
		DispatcherId:    r.id,
		Protocol:        Protocol,
		Revision:        r.view.Load().revision,
		PingIntervalMs:  millis(PingInterval),
		SilenceMs:       millis(HostSilence),
		MaxVerdictBytes: MaxVerdictBytes,
		Capabilities:    []string{capabilityBatches},
		Peers:           r.peers(),
	}
	for _, o := range offers {
		w.Hooks = append(w.Hooks, r.state(s, o))
	}
	return &hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Welcome{Welcome: w}}
}

// announce tells a host how those of its hooks stand that have changed.
func (r *Registry) announce(s *Session, changed map[digest]offer) {
	for _, o := range s.wishes.among(changed) {
		state := r.state(s, o)
		if state.GetState() == hostv1.State_STATE_UNKNOWN_HOOK { // which it was not before
			state.State, state.Message = hostv1.State_STATE_REMOVED, "no configuration has the hook any more, or it is not served over streams"
		}
		s.send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_HookState{HookState: state}})
	}
}

// join takes a session in that offers hooks. A second one of the same process replaces the first, whose calls finish where they are.
func (r *Registry) join(s *Session, offers []offer) error {
	r.mu.Lock()
	if r.draining {
		r.mu.Unlock()
		return ErrClosed
	}
	replaced := slices.Clone(r.roster.instances[processOf(s)])
	v, now := r.view.Load(), time.Now()
	granted := v.grants(s.peer)
	if err := r.roster.admit(s.peer, granted, len(replaced) > 0); err != nil {
		r.mu.Unlock()
		return err
	}
	r.roster.add(s, granted, now)
	if r.found.IsZero() {
		r.found = now
	}
	joins := r.assign(s, v, now)
	s.send(r.welcome(s, offers))
	for _, x := range joins {
		x.pool.add(x, now)
	}
	for _, other := range replaced {
		r.unpool(other, now)
	}
	r.mu.Unlock()
	r.pend(s)
	for _, other := range replaced {
		other.replaced()
	}
	r.freed(s)
	return nil
}

// leave lets a session go.
func (r *Registry) leave(s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.roster.remove(s) {
		return
	}
	r.unpool(s, time.Now())
}

// unpool takes a session out of its pools, for good. The registry's lock is held.
func (r *Registry) unpool(s *Session, now time.Time) {
	before := *s.pools.Load()
	s.pools.Store(&map[*pool]*member{})
	for p, x := range before {
		p.remove(x, now)
	}
}
