// Package serve runs a dispatcher with its edges: it wires all parts, and stops them in the order in which nothing is lost. It
// decides nothing about reviews.
package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/portcullis-mesh/portcullis/bridge"
	"github.com/portcullis-mesh/portcullis/bridge/outbound"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/kubekinds"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/reviewlog"
	"github.com/portcullis-mesh/portcullis/dispatcher/session"
	"github.com/portcullis-mesh/portcullis/dispatcher/shadow"
	"github.com/portcullis-mesh/portcullis/dispatcher/turns"
	adminv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admin/v1"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	clusterv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/cluster/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/cluster"
	"github.com/portcullis-mesh/portcullis/internal/cluster/follow"
	"github.com/portcullis-mesh/portcullis/internal/cluster/keeper"
	"github.com/portcullis-mesh/portcullis/internal/cluster/tunnel"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	configkubernetes "github.com/portcullis-mesh/portcullis/internal/config/kubernetes"
	"github.com/portcullis-mesh/portcullis/internal/config/lastgood"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/config/permit"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
	"github.com/portcullis-mesh/portcullis/internal/telemetry"
)

// reviewHeadroom is the size of a review as a message beyond its JSON: tags, lengths, and additions of the caller.
const reviewHeadroom = 64 << 10

// maxHooksNoted is how many hooks without a host /readyz names once the dispatcher is ready.
const maxHooksNoted = 8

// app is one dispatcher with its edges, wired and not yet running.
type app struct {
	config       serveConfig
	log          *slog.Logger
	telemetry    *telemetry.Telemetry
	gatherer     prometheus.Gatherer
	store        *store.Store
	control      *controlPlane
	statuses     *configkubernetes.StatusWriter // nil without custom resources
	permits      *permit.Permits
	lastGood     *lastgood.Writer // nil without a directory for it
	keys         *capabilityKeys  // nil without a file
	clusters     *cluster.Registry
	following    *follow.Manager
	keeper       *keeper.Keeper
	tunnels      *tunnel.Server
	router       *session.Router
	hosts        *session.Server
	channels     *channels
	webhooks     *outbound.Client
	memory       *memory.Ledger
	work         *turns.Queue // of work that identities cause beside reviews
	codec        *builtin.Codec
	latencies    *latency.Recorder
	shadows      *shadow.Recorder
	initializers *initializers // nil without etcd
	judge        *dispatcher.Dispatcher
	recorded     *reviewlog.Log  // nil without --record
	typeChecks   lint.TypeChecks // for each inspection
	bridge       *bridge.Bridge
	grpc         *grpc.Server
	health       *health.Server
	edge         *certs.Reloader // the files of the listener for API servers
	hostsEdge    *certs.Reloader // certificates of the listener for hosts
	admin        *http.Server
	begun        time.Time
	wasReady     atomic.Bool // missing has returned nothing once
}

// serve runs a dispatcher until ctx ends and everything has drained. It calls started with the addresses once every
// listener serves.
func serve(ctx context.Context, c serveConfig, log *slog.Logger, started func(listen.ReadyInfo) error) error {
	c.id = cmp.Or(c.id, uuid.NewString())
	tracing := telemetry.New(ctx, telemetry.Options{
		ServiceVersion: cli.Version(), ServiceInstance: c.id, Logger: log,
	})
	defer tracing.Close(ctx)
	stores, err := c.stores.open(ctx, c.id, log)
	if err != nil {
		return err
	}
	defer stores.close()
	a, err := newApp(c, stores, log, tracing)
	if err != nil {
		return err
	}
	tracing.ExportMetrics(ctx, a.gatherer)
	return a.run(ctx, started)
}

// newApp wires a dispatcher. This is the one place that knows all parts.
func newApp(c serveConfig, stores *stores, log *slog.Logger, tracing *telemetry.Telemetry) (*app, error) {
	metrics := telemetry.NewRegistry(cli.Version())
	a := &app{config: c, log: log, telemetry: tracing, gatherer: metrics, channels: newChannels(), work: turns.NewQueue(), begun: time.Now()}
	a.health = health.NewServer()
	var err error
	if a.edge, err = listen.OpenTLS(c.tls, "bridge", metrics, log); err != nil {
		return nil, err
	}
	a.hostsEdge, err = listen.OpenTLS(c.hostsTLS.OrElse(c.tls), "hosts", metrics, log)
	if err != nil {
		return nil, err
	}

	a.latencies, a.shadows = latency.NewRecorder(0), shadow.NewRecorder(0)
	a.router, err = session.New(session.Options{ID: c.id, Metrics: metrics, Logger: log, Beat: a.latencies.Beat})
	if err != nil {
		return nil, err
	}
	a.hosts = session.NewServer(a.router, channelOfCall)
	if a.memory, err = memory.New(memory.Options{Total: c.memoryBudget(), PerCluster: c.clusterMemory}); err != nil {
		return nil, fmt.Errorf("--memory-budget and --cluster-memory-budget: %w", err)
	}
	if a.webhooks, err = c.webhooks.Client(a.webhookOptions(metrics), log); err != nil {
		return nil, err
	}
	if a.codec, err = newCodec(metrics); err != nil {
		return nil, err
	}
	if err := a.wireClusters(metrics); err != nil {
		return nil, err
	}
	if err := a.wireStore(stores, metrics); err != nil {
		return nil, err
	}
	held := staged.Options{Prefix: c.stores.etcd.prefix, Memory: a.memory, Metrics: metrics, Logger: log}
	if a.initializers, err = c.initializers.open(stores, c.id, held); err != nil {
		return nil, err
	}
	if err := a.wireRoad(metrics); err != nil {
		return nil, err
	}
	if a.keeper, err = a.newKeeper(metrics); err != nil {
		return nil, err
	}
	a.warnOfOperators()
	if a.control, err = a.newControlPlane(stores); err != nil {
		return nil, err
	}
	if a.following, err = a.newFollow(stores, follow.Options{Lag: c.apiServerLag, Metrics: metrics}); err != nil {
		return nil, err
	}
	if stores.custom != nil {
		if a.statuses, err = a.statusWriter(stores.custom); err != nil {
			return nil, err
		}
	}
	if a.grpc, err = a.newGRPC(); err != nil {
		return nil, err
	}
	a.admin = telemetry.NewAdminServer(telemetry.AdminOptions{Gatherer: metrics, Ready: a.missing, Notes: a.notes, Profiles: c.profiles, Logger: log})
	return a, nil
}

// newKeeper keeps the entries of clusters.
func (a *app) newKeeper(metrics prometheus.Registerer) (*keeper.Keeper, error) {
	return keeper.New(keeper.Options{
		ID: a.config.id, Generation: a.generation, API: a.clusters.API, Memory: a.memory, CapabilityKeys: a.keys.Current, KeyOverlap: a.config.keyOverlap,
		Lag: a.config.apiServerLag, Metrics: metrics, Logger: a.log,
	})
}

// wireClusters makes the clusters known: their callers, and the ways to their API servers.
func (a *app) wireClusters(metrics prometheus.Registerer) (err error) {
	if a.keys, err = openCapabilityKeys(a.config.capabilityKeys, a.log); err != nil {
		return err
	}
	a.tunnels = tunnel.NewServer(a.authorizeBridge)
	a.clusters = cluster.New(cluster.Options{
		Builtin: kubekinds.Kinds{Codec: a.codec}, Conversions: a.webhooks.Conversions, Bridges: a.tunnels.Transport,
		BridgedConversions: a.tunnels.Conversions,
		CapabilityKeys:     a.keys.Current, FreshFor: a.config.clusterFreshFor, TrustedKubeconfigs: a.config.trustedKubeconfigs,
		Memory: a.memory, Work: turns.NewQueue(), Logger: a.log,
	})
	return metrics.Register(a.clusters)
}

// warnOfOperators logs a warning if the authorities of hosts can issue certificates of operators too.
func (a *app) warnOfOperators() {
	operators, n := a.config.stores.operator, a.hostsEdge.Authorities()
	if len(operators.Names) > 0 && len(operators.Authorities) == 0 && n > 1 {
		a.log.Warn("each authority that the listener for hosts trusts can issue certificates of operators: name those that may with --operator-authority",
			"authorities", n)
	}
}

// wireStore makes the configuration in force, and the permits for a stale one.
func (a *app) wireStore(stores *stores, metrics prometheus.Registerer) error {
	file := a.config.stores.stateFile(lastgood.FileName)
	var err error
	a.store, err = store.New(store.Options{
		Sources:       stores.sources,
		LastGood:      loadLastGood(file, stores.decoder, a.log),
		LeaseCoverage: stores.cover(),
		MaxWaitBytes:  a.config.heldBytes(),
		First:         a.checkConfiguration,
		OnSnapshot:    a.updateSnapshot,
		OnClusters:    a.updateClusters,
		Inspect:       a.inspection().Inspect,
		Work:          a.work,
		Logger:        a.log,
	})
	if err != nil {
		return err
	}
	if file != "" {
		if a.lastGood, err = lastgood.NewWriter(lastgood.WriterOptions{Live: a.store, File: file, Logger: a.log}); err != nil {
			return err
		}
	}
	if a.permits, err = permit.New(permit.Options{Live: a.store, File: a.config.stores.stateFile(permit.FileName), Logger: a.log}); err != nil {
		return err
	}
	a.permits.Restore() // permits from before the start are in force again
	return metrics.Register(a.store.Collector())
}

// updateSnapshot makes the hooks of a configuration known before a review uses it.
func (a *app) updateSnapshot(s *match.Snapshot) {
	a.router.Update(s)
	a.judge.Update(s)
}

// updateClusters makes the clusters of a configuration known: which callers may send reviews, and how they share the slots of hosts.
func (a *app) updateClusters(all []*kinds.Cluster) {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.Metadata.Name
	}
	a.router.UpdateClusters(names)
	a.clusters.Update(all)
	a.judge.UpdateClusters(names) // no review of another cluster comes any more
	a.bridge.UpdateClusters(names)
}

// generation is the configuration in force, for the entries of clusters.
func (a *app) generation() keeper.Generation {
	now := a.store.Configuration()
	g := keeper.Generation{Snapshot: now.Snapshot(), Fresh: now.Fresh, Next: now.Next()}
	for _, o := range now.Objects {
		if o.Cluster != nil {
			g.Clusters = append(g.Clusters, o.Cluster)
		}
	}
	return g
}

// wireRoad makes the road of a review: the bridge in front of the dispatcher.
func (a *app) wireRoad(metrics prometheus.Registerer) error {
	var err error
	a.judge, err = dispatcher.New(dispatcher.Options{
		Snapshots: a.store,
		Clusters:  a.clusters,
		Streams:   a.router,
		Webhooks:  a.webhooks,
		Stager:    a.initializers.dispatched(),
		Capacity:  a.router,
		Codec:     func(of conversion.Allowance) chain.Codec { return a.codec.NewPatchSession(of) },
		Options: observe.Options{
			TracerProvider: a.telemetry.TracerProvider, KeptTraces: a.telemetry.Kept, Metrics: metrics, Latencies: a.latencies,
			Slow: a.config.slow, Shadows: a.shadows, Logger: a.log,
		},
	})
	if err != nil {
		return err
	}
	if err := errors.Join(metrics.Register(a.memory.Collector()), metrics.Register(newDriftMetric(a.entryDrifts)),
		metrics.Register(newBreakGlassMetric(a))); err != nil {
		return err
	}
	reviewer := bridge.Reviewer(a.judge)
	if a.config.record.dir != "" {
		if a.recorded, err = a.config.record.open(a.judge, metrics, a.log); err != nil {
			return fmt.Errorf("--record: %w", err)
		}
		reviewer = a.recorded
	}
	options := bridge.Options{
		Reviewer:       reviewer,
		Authorize:      a.clusters.Authorize,
		MaxBodyBytes:   a.config.maxBody,
		Memory:         a.memory,
		Logger:         a.log,
		TracerProvider: a.telemetry.TracerProvider,
		Propagator:     a.telemetry.Propagator,
		Registerer:     metrics,
	}
	if a.config.capabilities {
		options.AuthorizeCapability = a.clusters.AuthorizeCapability
	}
	a.bridge, err = bridge.New(options)
	return err
}

// newGRPC is the server for hosts, and for direct callers.
func (a *app) newGRPC() (*grpc.Server, error) {
	permits, err := permit.NewService(permit.ServiceOptions{
		Permits: a.permits, ID: a.config.id, Identity: caller, Operators: a.config.stores.operator, Logger: a.log,
	})
	if err != nil {
		return nil, err
	}
	answers, err := newAnswers(caller)
	if err != nil {
		return nil, err
	}
	s := grpc.NewServer(append(session.ServerOptions(),
		grpc.Creds(hostCredentials{credentials.NewTLS(nil), a.hostsEdge}),
		// Direct callers send reviews, which are bounded by themselves, and operators send objects. The codec bounds the messages of
		// hosts.
		grpc.MaxRecvMsgSize(int(max(a.config.maxBody, service.MaxApplyBytes))+reviewHeadroom),
		grpc.ChainStreamInterceptor(a.channels.stream, delayStream, answers.stream),
		grpc.ChainUnaryInterceptor(a.channels.unary, delayUnary, answers.unary),
	)...)
	hostv1.RegisterHostServiceServer(s, a.hosts)
	admissionv1.RegisterAdmissionServiceServer(s, a.bridge.AdmissionService())
	clusterv1.RegisterClusterServiceServer(s, a.tunnels)
	a.control.register(s)
	adminv1.RegisterAdminServiceServer(s, permits)
	grpc_health_v1.RegisterHealthServer(s, a.health)
	if a.config.reflection {
		reflection.Register(s)
	}
	return s, nil
}

// authorizeBridge returns an error unless the caller may give access to the API server of a cluster.
func (a *app) authorizeBridge(ctx context.Context, cluster string) error {
	caller, err := channelOfCall(ctx).Identity()
	if err != nil {
		return err
	}
	return a.clusters.AuthorizeBridge(caller, cluster)
}

// missing are the reasons why this dispatcher is not ready. A hook without a host counts while the process is fresh: any
// within --ready-timeout, and later a fail-closed hook that another dispatcher can serve. If no dispatcher has a host,
// waiting does not help.
func (a *app) missing() []string {
	var out []string
	if err := a.store.Ready(); err != nil {
		out = append(out, err.Error())
	}
	if !a.bridge.Ready() {
		out = append(out, "stopping")
	}
	switch age := time.Since(a.begun); {
	case age < a.config.readyTimeout:
		out = append(out, a.clusters.Stale()...)
		for _, hook := range a.router.Ready() {
			out = append(out, "no host serves "+hook+" yet")
		}
	case age < a.config.readyOthers && !a.wasReady.Load():
		for _, hook := range a.servedElsewhere() {
			out = append(out, "no host serves "+hook+" here yet, and another dispatcher has one")
		}
	}
	if len(out) == 0 {
		a.wasReady.Store(true)
	}
	return out
}

// notes are remarks about a dispatcher that is ready.
func (a *app) notes() []string {
	out, missing := append(a.store.Notes(), a.breakGlassNotes()...), a.router.Ready()
	for _, hook := range missing[:min(len(missing), maxHooksNoted)] {
		out = append(out, "no host serves "+hook)
	}
	if more := len(missing) - maxHooksNoted; more > 0 {
		out = append(out, fmt.Sprintf("and %d more hooks have no host", more))
	}
	return out
}

// checkConfiguration refuses a first configuration with a document that is bad and has no last good version: its hooks would not
// be called, and requests that they refuse would pass. The process ends, so that the replicas that know a good version go on.
func (a *app) checkConfiguration(first store.Configuration) error {
	for _, o := range first.Restored() {
		a.log.Error("a document is bad, and its last good version from before the start is in force: mend it",
			"object", o.Key.String(), "from", o.Origin(), "saved", o.Saved, "age", time.Since(o.Saved).Round(time.Second))
	}
	err := first.Uncovered().Err()
	if err == nil || a.config.ignoreBad {
		return nil
	}
	return fmt.Errorf("the configuration has errors, and no last good version of these documents was saved in --state-dir; mend them, "+
		"or start with --ignore-bad-documents and without the hooks in them:\n%w", err)
}

// loadLastGood returns the objects that were in force before the start. An unreadable document is logged, and has no last good
// version.
func loadLastGood(file string, documents *config.Decoder, log *slog.Logger) []config.Object {
	if file == "" {
		return nil
	}
	objects, err := lastgood.Load(file, documents)
	if err != nil {
		log.Error("the last good configuration from before the start cannot be used as a whole: documents that are bad may have no last good version",
			"file", file, "objects_used", len(objects), "error", err)
	}
	return objects
}
