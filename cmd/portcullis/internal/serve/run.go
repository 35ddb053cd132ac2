package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/portcullis-mesh/portcullis/bridge"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/webhooks"
	"github.com/portcullis-mesh/portcullis/internal/config/gateway"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/telemetry"
)

// shadowTimeout bounds the wait for calls of hooks in shadow, which decide nothing, when the process stops.
const shadowTimeout = time.Second

type listeners struct{ bridge, hosts, admin net.Listener }

func (a *app) listen(ctx context.Context) (l listeners, err error) {
	var lc net.ListenConfig
	for _, s := range []struct {
		to      *net.Listener
		flag    string
		address string
	}{
		{&l.bridge, "listen", a.config.listen},
		{&l.hosts, "listen-hosts", a.config.listenHosts},
		{&l.admin, "listen-admin", a.config.listenAdmin},
	} {
		if *s.to, err = lc.Listen(ctx, "tcp", s.address); err != nil {
			l.close()
			return listeners{}, fmt.Errorf("--%s: %w", s.flag, err)
		}
	}
	return l, nil
}

func (l listeners) close() {
	for _, x := range []net.Listener{l.bridge, l.hosts, l.admin} {
		if x != nil {
			_ = x.Close()
		}
	}
}

// run serves until ctx ends, and then stops in the order in which nothing is lost: API servers first, then direct callers, hosts last.
func (a *app) run(ctx context.Context, started func(listen.ReadyInfo) error) error {
	l, err := a.listen(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	return a.serve(ctx, l, started)
}

// serve is run, on open listeners.
func (a *app) serve(ctx context.Context, l listeners, started func(listen.ReadyInfo) error) error {
	server, err := bridge.NewServer(bridge.ServerOptions{
		Handler: edge{a.bridge, a.control}, TLS: a.config.alpn.ServerTLS(a.edge), Logger: a.log,
		Channel:          func(state *tls.ConnectionState) identity.Channel { return a.edge.Channel(state) },
		PropagationDelay: a.config.stopDelay, StopTimeout: a.config.drainTimeout,
	})
	if err != nil {
		return err
	}
	// The parts that reviews depend on live until the last review is answered, also when a part fails.
	a.control.advertised = advertisedAddresses(a.config.advertise, l.hosts.Addr())
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBackground()
	g, failed := errgroup.WithContext(background)
	serving, stopServing := context.WithCancel(ctx)
	defer stopServing()
	takeBack := a.logStop(ctx)
	defer takeBack()
	context.AfterFunc(failed, stopServing) // a part that fails ends the others

	for _, part := range []func(context.Context) error{
		a.store.Run, a.control.run, a.permits.Run, a.clusters.Run, a.following.Run, a.keeper.Run, a.router.Run, a.edge.Run,
		a.hostsEdge.Run, a.keys.Run, a.channels.run, a.logBreakGlass, a.initializers.Run,
	} {
		g.Go(func() error { return part(background) })
	}
	if a.recorded != nil {
		g.Go(func() error { return a.recorded.Run(background) })
	}
	if a.statuses != nil {
		g.Go(func() error { return a.statuses.Run(background) })
	}
	g.Go(func() error { return telemetry.ServeAdmin(a.admin, l.admin) })
	if !a.awaitConfiguration(serving) {
		a.stop(background, stopBackground)
		return g.Wait()
	}
	if a.lastGood != nil {
		g.Go(func() error { return a.lastGood.Run(background) })
	}
	context.AfterFunc(serving, a.health.Shutdown)
	g.Go(func() error { return a.serveHosts(background, l.hosts) })
	g.Go(func() error {
		defer a.stop(background, stopBackground)
		return server.Serve(serving, l.bridge)
	})
	info := a.info(l)
	a.log.Info("serving", "bridge", info.Bridge, "hosts", info.Hosts, "admin", info.Admin)
	if err := started(info); err != nil {
		stopServing()
		return errors.Join(err, g.Wait())
	}
	err = g.Wait()
	a.hosts.Wait()
	a.log.Info("stopped")
	return err
}

// logStop logs the limits of the stop when ctx ends. The function that it returns cancels that, or waits until it is logged.
func (a *app) logStop(ctx context.Context) func() {
	logged := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(logged)
		a.log.Info("stopping; a second signal ends the process at once",
			"load_balancers_notice_within", a.config.stopDelay, "reviews_end_within", a.config.drainTimeout)
	})
	return func() {
		if !cancel() {
			<-logged
		}
	}
}

// awaitConfiguration waits for the first configuration, --ready-timeout at most: until there is one reviews are answered 503. It
// reports false when the first one was refused, which is the error of the store.
func (a *app) awaitConfiguration(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, a.config.readyTimeout)
	defer cancel()
	first, err := a.store.Fresh(ctx)
	if err == nil {
		a.store.Release(first)
		return true
	}
	if errors.Is(err, store.ErrStopped) {
		return false
	}
	a.log.Warn("serving without a configuration: reviews are answered 503 until there is one", "error", err)
	return true
}

func (a *app) info(l listeners) listen.ReadyInfo {
	return listen.ReadyInfo{
		Bridge: "https://" + l.bridge.Addr().String(),
		Hosts:  l.hosts.Addr().String(),
		Admin:  "http://" + l.admin.Addr().String(),
		CA:     a.config.tls.CA,
	}
}

// stop ends everything behind the bridge once the bridge has drained: first direct callers, after the answers to their reviews, then
// the hosts, which those answers need, then the rest.
func (a *app) stop(ctx context.Context, stopBackground context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, a.config.drainTimeout)
	defer cancel()
	var graceful sync.WaitGroup
	graceful.Go(a.grpc.GracefulStop) // ends with the last stream of a host, or with Stop
	a.channels.drained(ctx)
	a.leaveShadows(ctx)
	deadline, _ := ctx.Deadline()
	a.router.Drain(ctx, time.Until(deadline))
	a.grpc.Stop()
	graceful.Wait()
	webhooks.HangUp(context.WithoutCancel(ctx), a.webhooks, a.log)
	_ = a.admin.Close()
	stopBackground()
}

// leaveShadows ends the calls of hooks in shadow, so that nothing else waits for them.
func (a *app) leaveShadows(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, shadowTimeout)
	defer cancel()
	a.judge.Close(ctx)
}

// edge serves the listener for API servers: reviews, and as JSON ConfigService and staged objects.
type edge struct {
	*bridge.Bridge

	control *controlPlane
}

// ServeHTTP is part of http.Handler.
func (e edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, gateway.Prefix) || strings.HasPrefix(r.URL.Path, gateway.AnalysisPrefix) {
		e.control.gateway.ServeHTTP(w, r)
		return
	}
	if !e.control.staged.serves(w, r) {
		e.Bridge.ServeHTTP(w, r)
	}
}

// Drain begins the stop. Streams of operators end first, on both listeners: nothing has to wait for them.
func (e edge) Drain() {
	e.control.service.Drain()
	e.control.staged.service.Drain()
	e.Bridge.Drain()
}
