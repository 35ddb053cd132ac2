package adapt

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/portcullis-mesh/portcullis/bridge/adapt"
	"github.com/portcullis-mesh/portcullis/bridge/adapt/remote"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/telemetry"
)

// adapter is a host before a webhook, wired and not yet running.
type adapter struct {
	config    *config
	log       *slog.Logger
	telemetry *telemetry.Telemetry
	plan      *plan

	files    *certs.Reloader // for TLS to the webhook; nil without any
	webhooks map[listener]*remote.Webhook
	governor *remote.Governor
	calls    *metrics
	host     *hostsdk.Host
	admin    *http.Server // nil without an address
}

// listener is where a webhook listens, whatever the path.
type listener struct{ scheme, host, socket string }

func listenerOf(a remote.Address) listener { return listener{a.URL.Scheme, a.URL.Host, a.Socket} }

// run serves the hooks until ctx ends and the calls in flight have ended.
func run(ctx context.Context, c *config, plan *plan, log *slog.Logger) error {
	tracing := telemetry.New(ctx, telemetry.Options{ServiceName: c.name, ServiceVersion: cli.Version(), Logger: log})
	defer tracing.Close(ctx)
	metrics := telemetry.NewRegistry(cli.Version())
	a := newAdapter(c, plan, log)
	a.telemetry = tracing
	if err := a.wire(metrics); err != nil {
		return err
	}
	tracing.ExportMetrics(ctx, metrics)
	defer a.hangUp()
	return a.run(ctx)
}

func newAdapter(c *config, plan *plan, log *slog.Logger) *adapter {
	return &adapter{config: c, log: log, plan: plan, webhooks: map[listener]*remote.Webhook{}}
}

// wire makes the parts. It starts nothing.
func (a *adapter) wire(metrics *prometheus.Registry) error {
	if err := a.openWebhookTLS(); err != nil {
		return err
	}
	for _, at := range a.plan.addresses() {
		if err := a.connectTo(at); err != nil {
			return err
		}
	}
	options := remote.GovernorOptions{
		Slots: a.config.slots, MaxSlots: a.config.maxOutstanding, Slow: a.config.slow, Connect: a.connect, Logger: a.log,
	}
	if a.plan.ready != nil {
		options.Ready = a.ready
	}
	var err error
	if a.governor, err = remote.NewGovernor(options); err != nil {
		return err
	}
	if a.calls, err = newMetrics(metrics, a.governor, a.sessions); err != nil {
		return err
	}
	if a.host, err = a.newHost(); err != nil {
		return err
	}
	if a.config.listenAdmin != "" {
		a.admin = telemetry.NewAdminServer(telemetry.AdminOptions{Gatherer: metrics, Ready: a.missing, Profiles: a.config.profiles, Logger: a.log})
	}
	return nil
}

// openWebhookTLS reads the files for TLS to the webhook, if there are any.
func (a *adapter) openWebhookTLS() error {
	f := a.config.webhookTLS
	if a.config.insecure {
		a.log.Warn("the certificate of the webhook is not checked: any process of this machine that takes its address gets its reviews")
	}
	if f == (tlsFiles{}) {
		return nil
	}
	var err error
	a.files, err = certs.OpenReloader(certs.ReloaderOptions{
		CertFile: f.cert, KeyFile: f.key, CAFile: f.ca, Logger: a.log.With("files", "webhook"),
	})
	if err != nil {
		return fmt.Errorf("--webhook-ca, --webhook-cert and --webhook-key: %w", err)
	}
	return nil
}

// tlsTo is how a webhook is known.
func (a *adapter) tlsTo(at remote.Address) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cmp.Or(a.config.webhookServerName, at.URL.Hostname())}
	if a.files != nil {
		config = a.files.ClientTLS(config.ServerName)
		config.MinVersion = tls.VersionTLS12 // It is not a part of ours.
	}
	if a.config.webhookTLS.ca == "" { // The authorities of the system, or none.
		config.VerifyConnection = nil
		config.InsecureSkipVerify = a.config.insecure
	}
	return config
}

func (a *adapter) connectTo(at remote.Address) error {
	l := listenerOf(at)
	if a.webhooks[l] != nil {
		return nil
	}
	w, err := remote.New(remote.Options{Address: at, TLS: a.tlsTo(at), MaxConnections: a.config.maxOutstanding})
	a.webhooks[l] = w
	return err
}

func (a *adapter) newHost() (*hostsdk.Host, error) {
	c := a.config
	var hooks []hostsdk.Hook
	for _, h := range a.plan.hooks {
		hooks = append(hooks, a.hook(h))
	}
	return hostsdk.New(hostsdk.Options{
		Name: c.name, Dispatchers: c.dispatchers, TLS: hostsdk.TLSFiles(c.tls.cert, c.tls.key, c.tls.ca), ServerName: c.serverName,
		Instance: c.instance, Zone: c.zone, Clusters: c.clusters, MaxOutstanding: c.maxOutstanding, MaxFrameBytes: c.maxReview,
		DrainTimeout: c.drainTimeout, Logger: a.log, TracerProvider: a.telemetry.TracerProvider,
	}, hooks...)
}

// hook is a hook of the host.
func (a *adapter) hook(h adaptedHook) hostsdk.Hook {
	webhook := a.webhooks[listenerOf(h.at)]
	handler := adapt.Forward(webhook, &h.at.URL, adapt.Options{
		ReviewVersions: []string{h.version}, SideEffects: h.effects, Propagator: a.telemetry.Propagator, Observer: a.calls,
	})
	ready := hostsdk.ReadyWhen(func(ctx context.Context) error {
		err := webhook.Connect(ctx)
		if err == nil && a.plan.ready != nil {
			err = a.ready(ctx)
		}
		if err != nil {
			return hostsdk.NewError(err.Error(), nil)
		}
		return nil
	})
	switch {
	case !h.mutates:
		return hostsdk.Validate(h.name, handler, ready)
	case h.speculate:
		return hostsdk.Mutate(h.name, handler, ready, hostsdk.Speculate())
	default:
		return hostsdk.Mutate(h.name, handler, ready)
	}
}

// connect returns an error when no webhook of the hooks takes connections.
func (a *adapter) connect(ctx context.Context) error {
	var errs []error
	checked := map[listener]bool{}
	for _, h := range a.plan.hooks {
		l := listenerOf(h.at)
		if checked[l] {
			continue
		}
		checked[l] = true
		err := a.webhooks[l].Connect(ctx)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// ready asks --ready-url.
func (a *adapter) ready(ctx context.Context) error {
	return a.webhooks[listenerOf(*a.plan.ready)].Get(ctx, a.plan.ready.URL.Path)
}

// missing is why the process should not count as ready.
func (a *adapter) missing() []string {
	var out []string
	if !a.governor.Up() {
		out = append(out, "the webhook cannot be called")
	}
	if a.sessions() == 0 {
		out = append(out, "no dispatcher is connected")
	}
	select {
	case <-a.host.Ready():
	default:
		out = append(out, "the mesh does not call every hook yet; the log has their states")
	}
	return out
}

// sessions is how many dispatchers have accepted the host.
func (a *adapter) sessions() int { return len(a.host.Status().Sessions) }

// run serves until ctx ends, and then until the calls in flight have ended.
func (a *adapter) run(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx)) // for the last calls
	defer stop()
	g, failed := errgroup.WithContext(background)
	serving, stopServing := context.WithCancel(ctx)
	defer stopServing()
	context.AfterFunc(failed, stopServing)
	if err := a.serveAdmin(ctx, g); err != nil {
		return err
	}
	g.Go(func() error {
		defer stop()
		defer a.closeAdmin()
		a.log.Info("waiting for the webhook", "hooks", len(a.plan.hooks))
		if err := a.governor.Await(serving); err != nil {
			return nil // It was stopped before the webhook came.
		}
		g.Go(func() error { a.governor.Run(background, a.host); return nil })
		return a.host.Run(serving)
	})
	err := g.Wait()
	a.log.Info("stopped")
	return err
}

// serveAdmin serves probes and metrics, if there is an address for them.
func (a *adapter) serveAdmin(ctx context.Context, g *errgroup.Group) error {
	if a.admin == nil {
		return nil
	}
	var lc net.ListenConfig
	probes, err := lc.Listen(ctx, "tcp", a.config.listenAdmin)
	if err != nil {
		return fmt.Errorf("--listen-admin: %w", err)
	}
	a.log.Info("serving", "admin", "http://"+probes.Addr().String())
	g.Go(func() error { return telemetry.ServeAdmin(a.admin, probes) })
	return nil
}

func (a *adapter) closeAdmin() {
	if a.admin != nil {
		_ = a.admin.Close() // Nothing is lost.
	}
}

// hangUp closes the connections to the webhook.
func (a *adapter) hangUp() {
	for _, w := range a.webhooks {
		w.CloseIdleConnections()
	}
}
