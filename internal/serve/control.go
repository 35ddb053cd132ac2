package serve

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/portcullis-mesh/portcullis/cluster/registration"
	"github.com/portcullis-mesh/portcullis/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/config/gateway"
	"github.com/portcullis-mesh/portcullis/config/lint"
	"github.com/portcullis-mesh/portcullis/config/service"
	"github.com/portcullis-mesh/portcullis/config/store"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/session"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/identity"
)

// controlPlane is the part of a dispatcher with a store: it lets operators write, puts hooks in rotation, and reports to the other
// dispatchers the configuration that is in force here. Without a store it does nothing.
type controlPlane struct {
	stores   *stores
	service  *service.Service
	gateway  *gateway.Gateway
	presence *etcdstore.Presence
	live     *store.Store
	hosts    *session.Registry
	judge    *dispatcher.Dispatcher
	log      *slog.Logger
}

// newControlPlane makes it. The authorities of the listener for hosts vouch for operators, on both listeners.
func (a *app) newControlPlane(s *stores) (*controlPlane, error) {
	if s.objects == nil {
		return &controlPlane{}, nil
	}
	c := &controlPlane{stores: s, live: a.store, hosts: a.registry, judge: a.judge, log: a.log, presence: s.presence}
	var err error
	c.service, err = service.New(service.Options{
		Objects: s.objects, Live: a.store, Identity: caller, Operators: a.config.stores.operator, Inspect: a.inspection().InspectOnly, Logger: a.log,
		Backup: s.backup(), Hosts: a.hookHosts, Decoder: s.decoder,
	})
	if err != nil {
		return nil, err
	}
	c.gateway, err = gateway.New(gateway.Options{
		Service: c.service, Verify: func(state *tls.ConnectionState) identity.Channel { return a.hostsEdge.Verify(state) },
	})
	return c, err
}

func (a *controlPlane) register(s *grpc.Server) {
	if a.service != nil {
		configv1.RegisterConfigServiceServer(s, a.service)
	}
}

// run works until ctx ends.
func (a *controlPlane) run(ctx context.Context) error {
	if a.service == nil {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.service.Run(ctx) })
	g.Go(func() error { return a.presence.Run(ctx) })
	g.Go(func() error { a.report(ctx); return nil })
	g.Go(func() error { a.rotate(ctx); return nil })
	g.Go(func() error { return a.stores.watch(ctx) })
	return g.Wait()
}

// reportInterval is how often it is looked whether an older configuration is released: reviews end without a word.
const reportInterval = 200 * time.Millisecond

// report reports the configuration in force here whenever it changes.
func (a *controlPlane) report(ctx context.Context) {
	t := time.NewTicker(reportInterval)
	defer t.Stop()
	var last *etcdstore.Status
	for {
		now := a.live.Configuration()
		if status := a.status(&now); last == nil || !sameStatus(&status, last) {
			last = &status
			a.presence.Tell(status)
		}
		select {
		case <-now.Next():
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// inspection has the options of the lint.
func inspection() lint.Options {
	return lint.Options{OwnNamespace: ownNamespace(), MutateBudget: registration.DefaultMutateBudget}
}

// inspection is that of a dispatcher, which knows the bundles of its listeners.
func (a *app) inspection() lint.Options {
	look := inspection()
	look.Authorities = func() lint.Authorities {
		return lint.Authorities{Callers: a.edge.Authorities(), Hosts: a.hostsEdge.Authorities()}
	}
	return look
}

// namespaceFile has the namespace of a Pod.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// ownNamespace is the namespace that this process runs in; empty outside of a cluster.
func ownNamespace() string {
	data, err := os.ReadFile(namespaceFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// hookHosts is how the hosts of this dispatcher serve the hooks.
func (a *app) hookHosts() []service.HookHosts {
	all := a.registry.HookHosts()
	out := make([]service.HookHosts, len(all))
	for i, h := range all {
		out[i] = service.HookHosts(h)
	}
	return out
}
