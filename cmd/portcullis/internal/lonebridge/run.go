package lonebridge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/credentials"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/portcullis-mesh/portcullis/bridge"
	"github.com/portcullis-mesh/portcullis/bridge/outbound"
	"github.com/portcullis-mesh/portcullis/bridge/upstream"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/webhooks"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/cluster"
	"github.com/portcullis-mesh/portcullis/internal/cluster/tunnel"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/telemetry"
)

// process is a bridge without a dispatcher, wired and not yet running.
type process struct {
	config   config
	log      *slog.Logger
	bridge   *bridge.Bridge
	upstream *upstream.Reviewer
	memory   *memory.Ledger   // of reviews, and of the objects that conversions read
	webhooks *outbound.Client // for conversions
	tunnels  *tunnel.Client   // nil without access to the cluster
	edge     *certs.Reloader
	admin    *http.Server
	gatherer prometheus.Gatherer
}

// run runs a bridge until ctx ends and its reviews have been answered. It calls started once every listener serves.
func run(ctx context.Context, c config, log *slog.Logger, started func(listen.ReadyInfo) error) error {
	tracing := telemetry.New(ctx, telemetry.Options{ServiceVersion: cli.Version(), Logger: log})
	defer tracing.Close(ctx)
	b, err := newProcess(c, log, tracing)
	if err != nil {
		return err
	}
	tracing.ExportMetrics(ctx, b.gatherer)
	defer b.upstream.Close()
	defer webhooks.HangUp(context.WithoutCancel(ctx), b.webhooks, log)
	return b.run(ctx, started)
}

func newProcess(c config, log *slog.Logger, tracing *telemetry.Telemetry) (*process, error) {
	metrics := telemetry.NewRegistry(cli.Version())
	b := &process{config: c, log: log, gatherer: metrics}
	document, err := c.document()
	if err != nil {
		return nil, err
	}
	if b.edge, err = listen.OpenTLS(c.tls, "bridge", metrics, log); err != nil {
		return nil, err
	}
	mesh, err := certs.OpenReloader(certs.ReloaderOptions{CertFile: c.mesh.Cert, KeyFile: c.mesh.Key, CAFile: c.mesh.CA, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("--mesh-cert, --mesh-key and --mesh-ca: %w", err)
	}
	if err := listen.RegisterExpiry(metrics, mesh, "mesh"); err != nil {
		return nil, err
	}
	known := func(name string) credentials.TransportCredentials {
		return checkedLink{connect.NewCredentials(mesh, name)}
	}
	if b.memory, err = memory.New(memory.Options{Total: c.memoryBudget()}); err != nil {
		return nil, fmt.Errorf("--memory-budget: %w", err)
	}
	if b.webhooks, err = c.webhooks.Client(outbound.Options{Metrics: metrics, Propagator: tracing.Propagator, Memory: b.memory}, log); err != nil {
		return nil, err
	}
	if b.tunnels, err = b.newTunnels(known); err != nil {
		return nil, err
	}
	if b.upstream, err = upstream.New(upstream.Options{
		Targets: c.dispatchers, Credentials: known, Propagator: tracing.Propagator, TracerProvider: tracing.TracerProvider, Slow: c.slow,
		Logger: log,
	}); err != nil {
		return nil, err
	}
	if b.bridge, err = b.newBridge(document, metrics, tracing); err != nil {
		b.upstream.Close()
		return nil, err
	}
	b.admin = telemetry.NewAdminServer(telemetry.AdminOptions{Gatherer: metrics, Ready: b.missing, Profiles: c.profiles, Logger: log})
	return b, nil
}

// newBridge makes the JSON edge. It knows its callers as a dispatcher does.
func (b *process) newBridge(document *kinds.Cluster, metrics *prometheus.Registry, tracing *telemetry.Telemetry) (*bridge.Bridge, error) {
	callers := cluster.New(cluster.Options{Logger: b.log})
	callers.Update([]*kinds.Cluster{document})
	if err := metrics.Register(b.memory.Collector()); err != nil {
		return nil, err
	}
	options := bridge.Options{
		Reviewer: b.upstream, Authorize: callers.Authorize, MaxBodyBytes: b.config.maxBody, Memory: b.memory, Logger: b.log,
		TracerProvider: tracing.TracerProvider, Propagator: tracing.Propagator, Registerer: metrics,
	}
	if b.config.capabilities != "" {
		options.AuthorizeCapability = callers.AuthorizeCapability
	}
	made, err := bridge.New(options)
	if err == nil {
		made.UpdateClusters([]string{document.Metadata.Name})
	}
	return made, err
}

// newTunnels makes the access of dispatchers to the cluster; nil without.
func (b *process) newTunnels(known func(string) credentials.TransportCredentials) (*tunnel.Client, error) {
	c := &b.config
	if c.noCluster {
		return nil, nil //nolint:nilnil // documented
	}
	config, err := rest.InClusterConfig()
	if c.kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("the cluster: %w: give --kubeconfig, or --no-cluster-api", err)
	}
	return tunnel.NewClient(tunnel.ClientOptions{
		Cluster: c.cluster, Targets: c.dispatchers, Credentials: known, API: config,
		Conversions: b.webhooks.Conversions(c.cluster), Memory: b.memory, Logger: b.log,
	})
}

func (b *process) missing() []string {
	var out []string
	if !b.bridge.Ready() {
		out = append(out, "stopping")
	}
	if !b.upstream.Ready() {
		out = append(out, "no dispatcher is connected")
	}
	return out
}

// run serves until ctx ends, and then stops without losing a review.
func (b *process) run(ctx context.Context, started func(listen.ReadyInfo) error) error {
	var lc net.ListenConfig
	reviews, err := lc.Listen(ctx, "tcp", b.config.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer reviews.Close()
	probes, err := lc.Listen(ctx, "tcp", b.config.listenAdmin)
	if err != nil {
		return fmt.Errorf("--listen-admin: %w", err)
	}
	defer probes.Close()
	server, err := bridge.NewServer(bridge.ServerOptions{
		Handler: b.bridge, TLS: b.config.alpn.ServerTLS(b.edge), Logger: b.log,
		Channel:          func(state *tls.ConnectionState) identity.Channel { return b.edge.Channel(state) },
		PropagationDelay: b.config.stopDelay, StopTimeout: b.config.drainTimeout,
	})
	if err != nil {
		return err
	}
	return b.serve(ctx, server, reviews, probes, started)
}

func (b *process) serve(ctx context.Context, server *bridge.Server, reviews, probes net.Listener, started func(listen.ReadyInfo) error) error {
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx)) // reviews that are answered last need it
	defer stopBackground()
	g, failed := errgroup.WithContext(background)
	serving, stopServing := context.WithCancel(ctx)
	defer stopServing()
	context.AfterFunc(failed, stopServing)
	g.Go(func() error { return b.edge.Run(background) })
	if b.tunnels != nil {
		g.Go(func() error { return b.tunnels.Run(background) })
	}
	g.Go(func() error { return telemetry.ServeAdmin(b.admin, probes) })
	g.Go(func() error {
		defer stopBackground()
		defer b.admin.Close() //nolint:errcheck // nothing is lost
		return server.Serve(serving, reviews)
	})
	info := listen.ReadyInfo{Bridge: "https://" + reviews.Addr().String(), Admin: "http://" + probes.Addr().String(), CA: b.config.tls.CA}
	b.log.Info("serving", "bridge", info.Bridge, "admin", info.Admin, "cluster", b.config.cluster)
	if err := started(info); err != nil {
		stopServing()
		return errors.Join(err, g.Wait())
	}
	err := g.Wait()
	b.log.Info("stopped")
	return err
}
