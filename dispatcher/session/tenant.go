package session

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// tenant is a peer that has sessions. The router's lock guards its fields.
type tenant struct {
	peer      identity.Peer
	processes int          // that have sessions: a replaced session and the one in its place count once
	ungranted atomic.Int64 // since when no HookRoute grants it a hook, unix ns; 0 while one does. Read without the lock
}

// grant records whether any hook is granted to the peer.
func (t *tenant) grant(granted bool, now time.Time) {
	switch {
	case granted:
		t.ungranted.Store(0)
	case t.ungranted.Load() == 0:
		t.ungranted.Store(now.UnixNano())
	}
}

// admit reports why a session of a peer is not taken in; nil if it is. An identity has no more sessions than it leaves
// free for others, and few while no HookRoute grants it a hook. A session in the place of another one is taken in.
func (r *sessionIndex) admit(peer identity.Peer, granted, replaces bool) error {
	all, mine := len(r.instances), 0
	if t := r.tenants[peer]; t != nil {
		mine = t.processes
	}
	switch {
	case replaces:
		return nil
	case mine+1 > MaxSessions-all-1:
		return fmt.Errorf("%w: %d, of which identity %s has %d", errTooMany, all, peer.Name(), mine)
	case !granted && (mine >= MaxUngrantedOfIdentity || r.ungranted >= MaxUngrantedSessions):
		return fmt.Errorf("%w: no HookRoute lists identity %s in spec.hosts, which has %d; all such identities have %d",
			errTooManyUngranted, peer.Name(), mine, r.ungranted)
	}
	return nil
}

// tenantOf returns the tenant of a peer, and makes one if the peer has no sessions.
func (r *sessionIndex) tenantOf(peer identity.Peer, granted bool, now time.Time) *tenant {
	t := r.tenants[peer]
	if t == nil {
		t = &tenant{peer: peer}
		t.grant(granted, now)
		r.tenants[peer] = t
	}
	return t
}

// countProcesses counts processes of a peer. With the last one it is forgotten.
func (r *sessionIndex) countProcesses(t *tenant, n int) {
	if t.processes += n; t.processes == 0 {
		delete(r.tenants, t.peer)
	}
	if t.ungranted.Load() != 0 {
		r.ungranted += n
	}
}

// regrant applies the grants of a new hook table to all peers.
func (r *sessionIndex) regrant(v *hookTable, now time.Time) {
	r.ungranted = 0
	for peer, t := range r.tenants {
		if t.grant(v.grants(peer), now); t.ungranted.Load() != 0 {
			r.ungranted += t.processes
		}
	}
}
