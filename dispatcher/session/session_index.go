package session

import (
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/session/pool"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// sessionIndex is the sessions of a router, by the keys that find them.
type sessionIndex struct {
	sessions  map[string]*hostSession // by id
	instances map[process][]*hostSession
	tenants   map[identity.Peer]*tenant
	shards    [stream.TickShards]map[*hostSession]struct{} // by when they are looked after
	joined    int                                          // how many have ever been taken in
	ungranted int                                          // processes of identities that no hook is granted to
}

// process identifies a process, which may have one session at a time.
type process struct {
	peer     identity.Peer
	instance string
}

func newSessionIndex() sessionIndex {
	r := sessionIndex{
		sessions: map[string]*hostSession{}, instances: map[process][]*hostSession{}, tenants: map[identity.Peer]*tenant{},
	}
	for turn := range r.shards {
		r.shards[turn] = map[*hostSession]struct{}{}
	}
	return r
}

func processOf(s *hostSession) process { return process{s.Peer, s.Instance()} }

func (r *sessionIndex) addSession(s *hostSession, granted bool, now time.Time) {
	r.sessions[s.ID()] = s
	s.tenant, s.joined = r.tenantOf(s.Peer, granted, now), now
	s.shard = r.joined % stream.TickShards
	r.joined++
	r.shards[s.shard][s] = struct{}{}
	key := processOf(s)
	if len(r.instances[key]) == 0 {
		r.countProcesses(s.tenant, 1)
	}
	r.instances[key] = append(r.instances[key], s)
}

// removeSession lets a session go. It returns false if it was not there.
func (r *sessionIndex) removeSession(s *hostSession) bool {
	if r.sessions[s.ID()] != s {
		return false
	}
	delete(r.sessions, s.ID())
	delete(r.shards[s.shard], s)
	key := processOf(s)
	r.instances[key] = slices.DeleteFunc(r.instances[key], func(o *hostSession) bool { return o == s })
	if len(r.instances[key]) == 0 {
		delete(r.instances, key)
		r.countProcesses(s.tenant, -1)
	}
	return true
}

// isCurrent reports whether a session is its process's latest. Others finish their calls, and get no more.
func (r *sessionIndex) isCurrent(s *hostSession) bool {
	all := r.instances[processOf(s)]
	return len(all) > 0 && all[len(all)-1] == s
}

// offering returns the current sessions that offer any of the hooks.
func (r *sessionIndex) offering(offers map[pool.Digest]pool.Offer) map[*hostSession]struct{} {
	out := map[*hostSession]struct{}{}
	if len(offers) == 0 {
		return out
	}
	for _, s := range r.sessions {
		if s.Hello.OffersAny(offers) && r.isCurrent(s) {
			out[s] = struct{}{}
		}
	}
	return out
}
