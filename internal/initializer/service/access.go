package service

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/initializer"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// Grants has the permissions of the configuration in force. Its methods may be called concurrently.
type Grants interface {
	// Access returns the permissions of a caller.
	Access(caller identity.Peer) Access
	// Configured returns the initializers of a cluster that have a name, as [match.HookID.Pending] has them.
	Configured(cluster, name string) []string
	// Next is closed when another configuration is in force.
	Next() <-chan struct{}
}

// Access are the permissions of a caller.
type Access struct {
	// Initializers are the initializers that a HookRoute grants to the caller, in an order that stays the same.
	Initializers []Initializer
	// Reader: the caller has a role, and sees all staged objects without their content.
	Reader bool
	// Operator: the caller is an operator, and may end holds. An operator is a reader.
	Operator bool
}

// Initializer is an initializer that is granted.
type Initializer struct {
	// Pending identifies it, as [match.HookID.Pending] has it.
	Pending string
	// Clusters are the clusters that it is configured for; none means all.
	Clusters []string
}

// in reports whether the initializer is configured for a cluster.
func (i Initializer) in(cluster string) bool {
	return len(i.Clusters) == 0 || slices.Contains(i.Clusters, cluster)
}

// equal reports whether two accesses allow the same.
func (a Access) equal(b Access) bool {
	return a.Reader == b.Reader && a.Operator == b.Operator && slices.EqualFunc(a.Initializers, b.Initializers, func(x, y Initializer) bool {
		return x.Pending == y.Pending && slices.Equal(x.Clusters, y.Clusters)
	})
}

// view decides which objects a caller sees.
type view struct {
	Access

	caller identity.Peer
	now    func() time.Time
}

// viewOf returns the view of the caller, or an error if it sees nothing at all.
func (s *Service) viewOf(ctx context.Context) (*view, error) {
	caller := s.o.Identity(ctx)
	if caller.Name() == "" {
		return nil, status.Error(codes.Unauthenticated, "the caller has no identity: present a client certificate")
	}
	v := &view{caller: caller, Access: s.o.Grants.Access(caller), now: s.now}
	if len(v.Initializers) == 0 && !v.Reader && !v.Operator {
		return nil, status.Errorf(codes.PermissionDenied, "%q has no role, and no HookRoute grants it an initializer", caller.Name())
	}
	return v, nil
}

// enter admits a call. leave has to be called at its end.
func (s *Service) enter(ctx context.Context) (v *view, leave func(), err error) {
	if v, err = s.viewOf(ctx); err != nil {
		return nil, nil, err
	}
	if s.o.Store == nil {
		return nil, nil, status.Error(codes.FailedPrecondition, "there is no store (serve --data-dir or --etcd), so nothing is staged")
	}
	if ctx.Value(admittedKey{}) == s {
		return v, func() {}, nil
	}
	lease, err := s.calls.Reserve(v.caller.Name(), 1)
	if err != nil {
		return nil, nil, status.Errorf(codes.ResourceExhausted, "too many calls of %q are under way: ask again when some have been answered", v.caller.Name())
	}
	return v, lease.Release, nil
}

// admittedKey is the key of the service that has admitted the caller of a context.
type admittedKey struct{}

// Admit admits a call from its beginning to the end of its answer: calls in the context that it returns are a part of it. leave has to be called
// when the answer is written.
func (s *Service) Admit(ctx context.Context) (admitted context.Context, leave func(), err error) {
	if _, leave, err = s.enter(ctx); err != nil {
		return nil, nil, err
	}
	return context.WithValue(ctx, admittedKey{}, s), leave, nil
}

// granted reports whether the caller is granted an initializer of a cluster.
func (v *view) granted(cluster, pending string) bool {
	return slices.ContainsFunc(v.Initializers, func(i Initializer) bool { return i.Pending == pending && i.in(cluster) })
}

// initializes reports whether an initializer is pending that the caller is granted: it sees the object whole.
func (v *view) initializes(o *initializerv1.StagedObject) bool {
	return slices.ContainsFunc(o.GetPending(), func(pending string) bool { return v.granted(o.GetKey().GetCluster(), pending) })
}

// sees reports whether the caller sees that there is an object.
func (v *view) sees(o *initializerv1.StagedObject) bool {
	return v.Reader || v.Operator || v.initializes(o)
}

// show is an object that the caller sees, as it is sent.
func (v *view) show(o *initializerv1.StagedObject) *initializerv1.StagedObject {
	out := v.whole(o)
	if !v.initializes(o) {
		out.Object = nil
	}
	return out
}

// whole is an object with the time that is left for it, and with the names of the pending initializers: all that clients know of them.
func (v *view) whole(o *initializerv1.StagedObject) *initializerv1.StagedObject {
	out := staged.Copy(o)
	out.Pending = make([]string, len(o.GetPending()))
	for i, pending := range o.GetPending() {
		out.Pending[i] = initializer.NameOf(pending)
	}
	out.RemainingMs = wire.Milliseconds(o.GetExpires().AsTime().Sub(v.now()))
	return out
}
