package service

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/dispatcher/turns"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

const (
	// MaxCalls bounds the calls in flight, of all methods and listeners. One identity has no more of them than it leaves free
	// for the others; all identities without a role together count as one.
	MaxCalls = 128
	// RolesAge bounds the age of the read by which an identity without a role is refused. All such identities together cause one
	// read in this time, and a new Role takes effect for them within it.
	RolesAge = 100 * time.Millisecond
)

// strangers is the holder of the calls of all identities without a known role. No identity is empty.
const strangers = ""

var errNoIdentity = status.Error(codes.Unauthenticated, "the caller has no identity: present a client certificate")

// roleCache holds the roles of the latest read of the store. Its methods may be called concurrently.
type roleCache struct {
	reading chan struct{} // holds a token while a caller without a role reads the store

	mu      sync.Mutex // guards the fields below
	roles   []*kinds.RoleSpec
	begun   time.Time // start of the read
	changed time.Time // last commit of this process: earlier reads may be outdated
}

func newRoleCache() *roleCache { return &roleCache{reading: make(chan struct{}, 1)} }

// update stores the roles of a read, unless the roles of a later read are there.
func (c *roleCache) update(roles []*kinds.RoleSpec, begun time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !begun.Before(c.begun) {
		c.roles, c.begun = roles, begun
	}
}

// expire prevents refusals by reads that began before now.
func (c *roleCache) expire(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = now
}

// lookup reports whether a caller has a role, and whether the roles are current enough to refuse it.
func (c *roleCache) lookup(caller identity.Peer, now time.Time) (has, current bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	has = slices.ContainsFunc(c.roles, func(role *kinds.RoleSpec) bool { return role.Grant().Includes(caller) })
	return has, c.begun.After(c.changed) && now.Sub(c.begun) < RolesAge
}

// operator reports whether a caller has the role of an operator.
func (c *roleCache) operator(caller identity.Peer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.roles, func(role *kinds.RoleSpec) bool {
		return role.Role == kinds.RoleOperator && role.Grant().Includes(caller)
	})
}

// enter admits a call of an identity that has a role in the cache or, for others, in the store. The call checks its access
// again by the state that it reads. leave has to be called at the end of the call.
func (s *Service) enter(ctx context.Context) (leave func(), err error) {
	caller := s.o.Identity(ctx)
	if caller.Name() == "" {
		return nil, errNoIdentity
	}
	holder, known := caller.Name(), s.o.Operators.Includes(caller)
	if !known {
		known, _ = s.roles.lookup(caller, s.now())
	}
	if !known {
		holder = strangers
	}
	lease, err := s.calls.Reserve(holder, 1)
	if err != nil {
		return nil, status.Errorf(codes.ResourceExhausted, "too many calls of %q are under way: ask again when some have been answered", caller.Name())
	}
	if !known {
		if err := s.lookUpRole(ctx, caller); err != nil {
			lease.Release()
			return nil, err
		}
	}
	return lease.Release, nil
}

// lookUpRole returns an error unless a caller has a role by a read of the store within RolesAge. One caller at a time reads;
// the others wait and use the result.
func (s *Service) lookUpRole(ctx context.Context, caller identity.Peer) error {
	select {
	case s.roles.reading <- struct{}{}:
		defer func() { <-s.roles.reading }()
	case <-ctx.Done():
		return ended(ctx)
	}
	if _, current := s.roles.lookup(caller, s.now()); !current {
		if _, err := s.read(ctx); err != nil {
			return err
		}
	}
	if has, _ := s.roles.lookup(caller, s.now()); !has {
		return errNoRole(caller.Name())
	}
	return nil
}

func errNoRole(identity string) error {
	return status.Errorf(codes.PermissionDenied, "%q has no role: an operator has to name it in a Role, as viewer, author or operator, "+
		"and an authority of its certificate where the Role names authorities", identity)
}

// turn returns when the caller may occupy a processor, which reviews need; done ends its turn. No call waits for the store in its turn, so that a store
// that does not answer delays no other call.
func (s *Service) turn(ctx context.Context) (done func(), err error) {
	caller := s.o.Identity(ctx)
	return wait(ctx, s.work, caller.Name(), s.rests(caller))
}

// wait is [turns.Queue.Wait] whose error is a status.
func wait(ctx context.Context, q *turns.Queue, holder string, rests bool) (done func(), err error) {
	if done, err = q.Wait(ctx, holder, rests); err != nil {
		err = ended(ctx)
	}
	return done, err
}

// rests reports whether a caller rests from its work; an operator need not.
func (s *Service) rests(caller identity.Peer) bool {
	return !s.o.Operators.Includes(caller) && !s.roles.operator(caller)
}
