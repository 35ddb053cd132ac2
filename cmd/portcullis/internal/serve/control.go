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

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/session"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cluster/follow"
	"github.com/portcullis-mesh/portcullis/internal/cluster/keeper"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/gateway"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// controlPlane lets operators read the configuration in force here. With a store it also lets them write, puts hooks in rotation, and
// reports to the other dispatchers the configuration that is in force here. Controllers and operators reach staged objects through it.
type controlPlane struct {
	stores   *stores
	service  *service.Service
	gateway  *gateway.Gateway
	staged   *initializerService
	presence *etcdstore.Presence
	live     *store.Store
	hosts    *session.Router
	judge    *dispatcher.Dispatcher
	log      *slog.Logger
	id       string
	others   others
	kept     func() []keeper.State
	follows  func() []follow.ClusterStatus

	advertised []string // where hosts reach this dispatcher; set before run
}

// newControlPlane makes it. The authorities of the listener for hosts vouch for operators, on both listeners.
func (a *app) newControlPlane(s *stores) (*controlPlane, error) {
	c := &controlPlane{stores: s, live: a.store, hosts: a.router, judge: a.judge, log: a.log, presence: s.presence, id: a.config.id, kept: a.keeper.States}
	c.follows = func() []follow.ClusterStatus { return a.following.Statuses() }
	var objects service.Objects // nil without a store
	if s.objects != nil {
		objects = s.objects
	}
	written, err := s.writeBudget(a.config.initializers.retention, a.storeUsage())
	if err != nil {
		return nil, err
	}
	c.service, err = service.New(service.Options{
		Objects: objects, Report: c.ownReport, Sources: a.config.stores.places(), Live: a.store,
		Identity: caller, Operators: a.config.stores.operator, Inspect: a.inspection().InspectOnly, Logger: a.log,
		Backup: s.backup(), ID: a.config.id, Hooks: a.hookHosts, Hosts: a.connectedHosts, Offers: a.router.Offers, Decoder: s.decoder, Latencies: a.latencies,
		Shadows: a.shadows, Written: written, StoreUsage: a.storeUsage(), Work: a.work,
	})
	if err != nil {
		return nil, err
	}
	if c.staged, err = a.newInitializerService(); err != nil {
		return nil, err
	}
	c.gateway, err = gateway.New(gateway.Options{
		Service: c.service, Verify: func(state *tls.ConnectionState) identity.Channel { return a.hostsEdge.Verify(state) },
	})
	return c, err
}

func (a *controlPlane) register(s *grpc.Server) {
	configv1.RegisterConfigServiceServer(s, a.service)
	analysisv1.RegisterAnalysisServiceServer(s, a.service)
	a.staged.register(s)
}

// ownReport is the report of this dispatcher.
func (a *controlPlane) ownReport() *configv1.DispatcherReport {
	now := a.live.Configuration()
	return a.reportOf(&now)
}

// run works until ctx ends.
func (a *controlPlane) run(ctx context.Context) error {
	if a.presence == nil {
		<-ctx.Done()
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.service.Run(ctx) })
	g.Go(func() error { return a.presence.Run(ctx) })
	g.Go(func() error { a.report(ctx); return nil })
	g.Go(func() error { a.rotate(ctx); return nil })
	g.Go(func() error { a.watchOthers(ctx); return nil })
	g.Go(func() error { return a.stores.watch(ctx) })
	return g.Wait()
}

// reportInterval is how often it is looked whether an older configuration is released: reviews end without a word.
const reportInterval = 200 * time.Millisecond

// connectedInterval is how often a report tells anew which hosts are connected: a host that comes and goes has little written.
const connectedInterval = time.Second

// report reports the configuration in force here whenever it changes.
func (a *controlPlane) report(ctx context.Context) {
	t := time.NewTicker(reportInterval)
	defer t.Stop()
	var last *configv1.DispatcherReport
	var connected *configv1.ConnectedHosts
	var of *match.Snapshot
	var looked time.Time
	for {
		now := a.live.Configuration()
		if s := now.Snapshot(); s != nil && (s != of || time.Since(looked) >= connectedInterval) {
			connected, of, looked = reportConnected(a.hosts.Offerings(s.Hooks())), s, time.Now()
		}
		report := a.reportOf(&now)
		if report.Connected = connected; !etcdstore.SameReport(report, last) {
			last = report
			a.presence.Tell(report)
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
	return lint.Options{OwnNamespace: ownNamespace(), MutateBudget: registration.DefaultMutateTimeout, Now: time.Now}
}

// inspection returns the lint options of a dispatcher, which knows the bundles of its listeners.
func (a *app) inspection() lint.Options {
	look := inspection()
	look.TypeChecks = &a.typeChecks
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
