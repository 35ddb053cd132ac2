package serve

import (
	"context"
	"crypto/tls"
	"net/http"
	"slices"

	"google.golang.org/grpc"

	configgateway "github.com/portcullis-mesh/portcullis/config/gateway"
	"github.com/portcullis-mesh/portcullis/config/kinds"
	"github.com/portcullis-mesh/portcullis/config/store"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/identity"
	"github.com/portcullis-mesh/portcullis/initializer/gateway"
	"github.com/portcullis-mesh/portcullis/initializer/service"
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
		Grants: initializerGrants{a.store.Configuration, a.config.stores.operator}, Identity: caller,
		MaxObjectBytes: a.config.initializers.limits.ObjectBytes, Logger: a.log,
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

// initializerGrants are what the configuration in force grants to callers of InitializerService.
type initializerGrants struct {
	configuration func() store.Configuration
	operators     identity.Grant
}

var _ service.Grants = initializerGrants{}

// Access implements [service.Grants].
func (g initializerGrants) Access(caller identity.Peer) service.Access {
	now := g.configuration()
	var a service.Access
	for h := range initializersOf(now.Snapshot()) {
		if (identity.Grant{Names: h.Route.Hosts, Authorities: h.Route.Authorities}).Includes(caller) {
			if clusters, some := clustersOf(h); some {
				a.Initializers = append(a.Initializers, service.Initializer{Name: h.ID.Name, Clusters: clusters})
			}
		}
	}
	a.Operator = g.operators.Includes(caller)
	for _, o := range now.Objects {
		if o.Role != nil && o.Role.Spec.Grant().Includes(caller) {
			a.Reader, a.Operator = true, a.Operator || o.Role.Spec.Role == kinds.RoleOperator
		}
	}
	a.Reader = a.Reader || a.Operator
	return a
}

// Configured implements [service.Grants].
func (g initializerGrants) Configured(cluster, initializer string) bool {
	now := g.configuration()
	for h := range initializersOf(now.Snapshot()) {
		if h.ID.Name == initializer && h.Serves(cluster) {
			return true
		}
	}
	return false
}

// Next implements [service.Grants].
func (g initializerGrants) Next() <-chan struct{} {
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
