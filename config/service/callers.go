package service

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/config/kinds"
	"github.com/portcullis-mesh/portcullis/identity"
)

const (
	// MaxCalls bounds the calls under way, on all listeners and whatever they ask. One identity has no more of them than it
	// leaves free for the others, and all identities without a role together count as one.
	MaxCalls = 128
	// RolesAge bounds how old a reading of the store may be by which an identity without a role is refused. All of them
	// together cost one reading in this time. A Role that is granted has effect for who was refused before within it.
	RolesAge = 100 * time.Millisecond
)

// strangers is whose share of the calls identities without a known role take. No identity is empty.
const strangers = ""

// errNoIdentity answers who has no certificate.
var errNoIdentity = status.Error(codes.Unauthenticated, "nobody can tell who calls: present a client certificate")

// roster is what is known of roles from the latest reading of the store. Its methods may be called concurrently.
type roster struct {
	reading chan struct{} // a token for who reads the store for callers without a role

	mu      sync.Mutex // of what follows
	roles   []*kinds.RoleSpec
	begun   time.Time // of the reading
	changed time.Time // when this process has last changed the store: what was read before may be over
}

func newRoster() *roster { return &roster{reading: make(chan struct{}, 1)} }

// saw keeps the roles of a reading, unless a later one is there.
func (r *roster) saw(roles []*kinds.RoleSpec, begun time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !begun.Before(r.begun) {
		r.roles, r.begun = roles, begun
	}
}

// outdate makes what was read until now too old to refuse anybody by.
func (r *roster) outdate(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = now
}

// knows reports whether a caller had a role when the store was last read, and whether that is late enough to refuse it.
func (r *roster) knows(caller identity.Peer, now time.Time) (has, current bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	has = slices.ContainsFunc(r.roles, func(role *kinds.RoleSpec) bool { return role.Grant().Includes(caller) })
	return has, r.begun.After(r.changed) && now.Sub(r.begun) < RolesAge
}

// enter lets in a call of who has a role by what is known here, and of who has got one by what the store says: the call has
// to ask again by what it reads. leave has to be called when it is over.
func (s *Service) enter(ctx context.Context) (leave func(), err error) {
	caller := s.o.Identity(ctx)
	if caller.Name() == "" {
		return nil, errNoIdentity
	}
	share, known := caller.Name(), s.o.Operators.Includes(caller)
	if !known {
		known, _ = s.roster.knows(caller, s.o.Now())
	}
	if !known {
		share = strangers
	}
	lease, err := s.calls.Reserve(share, 1)
	if err != nil {
		return nil, status.Errorf(codes.ResourceExhausted, "too many calls of %q are under way: ask again when some have been answered", caller.Name())
	}
	if !known {
		if err := s.introduce(ctx, caller); err != nil {
			lease.Release()
			return nil, err
		}
	}
	return lease.Release, nil
}

// introduce is nil for who has a role by what the store has held within RolesAge. One caller at a time reads it, and those who
// wait for that need not.
func (s *Service) introduce(ctx context.Context, caller identity.Peer) error {
	select {
	case s.roster.reading <- struct{}{}:
		defer func() { <-s.roster.reading }()
	case <-ctx.Done():
		return ended(ctx)
	}
	if _, current := s.roster.knows(caller, s.o.Now()); !current {
		if _, err := s.read(ctx); err != nil {
			return err
		}
	}
	if has, _ := s.roster.knows(caller, s.o.Now()); !has {
		return errNoRole(caller.Name())
	}
	return nil
}

// errNoRole answers who has none.
func errNoRole(identity string) error {
	return status.Errorf(codes.PermissionDenied, "%q has no role: an operator has to name it in a Role, as viewer, author or operator, "+
		"and an authority of its certificate where the Role names authorities", identity)
}
