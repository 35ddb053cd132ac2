package serve

import (
	"context"
	"crypto/tls"
	"net/http"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	configgateway "github.com/portcullis-mesh/portcullis/internal/config/gateway"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/initializer"
	"github.com/portcullis-mesh/portcullis/internal/initializer/gateway"
	"github.com/portcullis-mesh/portcullis/internal/initializer/service"
)

// initializerService lets controllers initialize staged objects, and operators look at them: over gRPC on the listener for hosts, and as
// JSON on the one for API servers. The authorities of the listener for hosts vouch for both.
type initializerService struct {
	service *service.Service
	gateway *gateway.Gateway
}

// newInitializerService makes it, for the objects of a.initializers.
func (a *app) newInitializerService() (*initializerService, error) {
	o := service.Options{
		Grants: &initializerGrants{configuration: a.store.Configuration, operators: a.config.stores.operator}, Identity: caller,
		MaxObjectBytes: a.config.initializers.limits.ObjectBytes, Work: a.work, Logger: a.log,
	}
	if a.initializers != nil {
		o.Store = a.initializers.store
	}
	var err error
	s := &initializerService{}
	if s.service, err = service.New(o); err != nil {
		return nil, err
	}
	s.gateway, err = gateway.New(gateway.Options{
		Service: s.service, Caller: func(ctx context.Context) string { return caller(ctx).Name() },
		Identify: func(r *http.Request) (context.Context, func()) {
			return configgateway.Identify(r, func(state *tls.ConnectionState) identity.Channel { return a.hostsEdge.Verify(state) })
		},
	})
	return s, err
}

func (s *initializerService) register(r grpc.ServiceRegistrar) {
	initializerv1.RegisterInitializerServiceServer(r, s.service)
}

// serves answers a request if it is about staged objects.
func (s *initializerService) serves(w http.ResponseWriter, r *http.Request) bool {
	if !gateway.Serves(r.URL.Path) {
		return false
	}
	s.gateway.ServeHTTP(w, r)
	return true
}

// initializerGrants are the grants of the configuration in force to callers of InitializerService.
type initializerGrants struct {
	configuration func() store.Configuration
	operators     identity.Grant

	latest atomic.Pointer[grantTable]
}

var _ service.Grants = (*initializerGrants)(nil)

// grantTable has the grants of one configuration: the part that a call needs, which is small where hooks are many.
type grantTable struct {
	next         <-chan struct{} // of the configuration, by which it is known again
	initializers []grantedInitializer
	roles        []grantedRole
}

type grantedInitializer struct {
	service.Initializer

	to identity.Grant
}

type grantedRole struct {
	to       identity.Grant
	operator bool
}

// table returns the grants of the configuration in force. It is built once for each configuration.
func (g *initializerGrants) table() *grantTable {
	now := g.configuration()
	if t := g.latest.Load(); t != nil && t.next == now.Next() {
		return t
	}
	t := &grantTable{next: now.Next()}
	for h := range initializersOf(now.Snapshot()) {
		if clusters, some := clustersOf(h); some {
			to := identity.Grant{Names: h.Route.Hosts, Authorities: h.Route.Authorities}
			t.initializers = append(t.initializers, grantedInitializer{service.Initializer{Pending: h.ID.Pending(), Clusters: clusters}, to})
		}
	}
	for _, o := range now.Objects {
		if o.Role != nil {
			t.roles = append(t.roles, grantedRole{o.Role.Spec.Grant(), o.Role.Spec.Role == kinds.RoleOperator})
		}
	}
	g.latest.Store(t)
	return t
}

// Access implements [service.Grants].
func (g *initializerGrants) Access(caller identity.Peer) service.Access {
	a, t := service.Access{Operator: g.operators.Includes(caller)}, g.table()
	for _, i := range t.initializers {
		if i.to.Includes(caller) {
			a.Initializers = append(a.Initializers, i.Initializer)
		}
	}
	for _, r := range t.roles {
		if (!a.Reader || r.operator && !a.Operator) && r.to.Includes(caller) {
			a.Reader, a.Operator = true, a.Operator || r.operator
		}
	}
	a.Reader = a.Reader || a.Operator
	return a
}

// Configured implements [service.Grants].
func (g *initializerGrants) Configured(cluster, name string) (pending []string) {
	for _, i := range g.table().initializers {
		if initializer.NameOf(i.Pending) == name && (len(i.Clusters) == 0 || slices.Contains(i.Clusters, cluster)) {
			pending = append(pending, i.Pending)
		}
	}
	return pending
}

// Next implements [service.Grants].
func (g *initializerGrants) Next() <-chan struct{} {
	now := g.configuration()
	return now.Next()
}

// initializersOf yields the initializers of a snapshot, which may be nil.
func initializersOf(s *match.Snapshot) func(func(*match.Hook) bool) {
	return func(yield func(*match.Hook) bool) {
		if s == nil {
			return
		}
		for _, h := range s.Hooks() {
			if h.ID.Stage == admissionv1.Stage_STAGE_INITIALIZE && !yield(h) {
				return
			}
		}
	}
}

// clustersOf are the clusters that a hook serves; none means all. some is false if it serves no cluster at all.
func clustersOf(h *match.Hook) (clusters []string, some bool) {
	if h.ID.Scope != "" {
		return []string{h.ID.Scope}, h.Serves(h.ID.Scope)
	}
	return slices.Sorted(slices.Values(h.Route.Clusters)), true
}
