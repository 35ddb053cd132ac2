package tenancy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/portcullis-mesh/portcullis/bridge/outbound"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/test/bench/pki"
)

// The clusters.
const (
	measured  = "measured"  // whose reviews are measured
	neighbour = "neighbour" // who floods
)

const (
	// handling is how long a hook takes for the measured cluster.
	handling = 5 * time.Millisecond
	// outstanding is how many calls the host takes at a time: the default of a dispatcher.
	outstanding = 16
	// hangUp bounds the end of calls that nobody waits for.
	hangUp = 10 * time.Second
)

// arena is a dispatcher with its hooks, wired as `portcullis serve` wires it, without the edge. close ends it.
type arena struct {
	keys       *pki.PKI
	hooks      hooks
	dispatcher *dispatcher.Dispatcher
	router     *session.Router
	webhooks   *outbound.Client
	metrics    *prometheus.Registry
	sessions   *session.Server
	grpc       *grpc.Server

	stop      context.CancelFunc
	stopHosts context.CancelFunc
	running   errgroup.Group
	hosts     errgroup.Group
}

// start starts everything, and returns when the host is in rotation.
func start(ctx context.Context, keys *pki.PKI) (*arena, error) {
	a := &arena{keys: keys, metrics: prometheus.NewRegistry()}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	hosting, stopHosts := context.WithCancel(life)
	a.stop, a.stopHosts = stop, stopHosts
	err := a.hooks.start(life, keys)
	if err == nil {
		err = a.wire()
	}
	if err == nil {
		err = a.serve(ctx, life, hosting)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tenancy: %w", err), a.close(ctx))
	}
	return a, nil
}

// wire makes the parts.
func (a *arena) wire() error {
	snapshot, err := a.hooks.compile()
	if err != nil {
		return err
	}
	if a.router, err = session.New(session.Options{Metrics: a.metrics}); err != nil {
		return err
	}
	a.router.Update(snapshot)
	a.router.UpdateClusters([]string{measured, neighbour})
	if a.webhooks, err = outbound.New(outbound.Options{Metrics: a.metrics, Networks: outbound.Loopback()}); err != nil {
		return err
	}
	known := knowledge{snapshot: snapshot}
	a.dispatcher, err = dispatcher.New(dispatcher.Options{
		Snapshots: known, Clusters: known, Streams: a.router, Capacity: a.router, Webhooks: a.webhooks,
		Options: observe.Options{
			Metrics: a.metrics,
		},
	})
	return err
}

// serve connects the host.
func (a *arena) serve(ctx, life, hosting context.Context) error {
	a.sessions = session.NewServer(a.router, func(context.Context) identity.Channel { return identity.Named(pki.Identity) })
	a.grpc = grpc.NewServer(append(session.ServerOptions(), grpc.Creds(credentials.NewTLS(a.keys.Server("h2"))))...)
	hostv1.RegisterHostServiceServer(a.grpc, a.sessions)
	listener, err := (&net.ListenConfig{}).Listen(life, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	a.running.Go(func() error { return a.grpc.Serve(stream.Listener(listener)) })
	a.running.Go(func() error { return a.router.Run(life) })
	h, err := hostsdk.New(hostsdk.Options{
		Name: "bench", Instance: "host", Dispatchers: []string{listener.Addr().String()}, TLS: hostsdk.TLSConfig(a.keys.Client()),
		MaxOutstanding: outstanding, Logger: slog.New(slog.DiscardHandler),
	}, hostsdk.Validate(hookName(streams), handle))
	if err != nil {
		return err
	}
	a.hosts.Go(func() error { return h.Run(hosting) })
	select {
	case <-h.Ready():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// handle is the handler of the host: it takes its time for the measured cluster, and does not answer the other one.
func handle(ctx context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
	if r.Cluster() == neighbour {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	<-time.After(handling)
	return hostsdk.Allow(), nil
}

// review sends one review of a cluster to a hook. It is an error if it is not admitted.
func (a *arena) review(ctx context.Context, cluster string, to kind) error {
	answer, err := a.dispatcher.Review(ctx, &review.Request{Stage: admissionv1.Stage_STAGE_VALIDATE, Admission: request(cluster, to)})
	if err != nil {
		return fmt.Errorf("tenancy: %w", err)
	}
	if !answer.Response.GetAllowed() || len(answer.Response.GetWarnings()) > 0 {
		return fmt.Errorf("tenancy: a review of %s was not simply admitted: %v", cluster, answer.Response)
	}
	return nil
}

// calls is how many calls to webhooks are under way or wait.
func (a *arena) calls() float64 {
	families, err := a.metrics.Gather()
	if err != nil {
		return 0
	}
	n := 0.0
	for _, f := range families {
		if f.GetName() == "portcullis_webhook_calls" || f.GetName() == "portcullis_webhook_waiting_calls" {
			n += f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return n
}

// close ends everything that has begun.
func (a *arena) close(ctx context.Context) error {
	a.stopHosts()
	err := a.hosts.Wait()
	if a.webhooks != nil {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), hangUp)
		err = errors.Join(err, a.webhooks.Close(bounded))
		cancel()
	}
	if a.grpc != nil {
		a.grpc.Stop()
	}
	a.stop()
	err = errors.Join(err, a.running.Wait())
	if a.sessions != nil {
		a.sessions.Wait()
	}
	return errors.Join(err, a.hooks.close())
}
