// Package mesh is Portcullis as `portcullis serve` wires it, in this process: a dispatcher, a bridge in front of it, and
// hosts made with hostsdk that dialled it over mutual TLS on loopback. Metrics and records of reviews are on, and traces are off, as
// they are by default. Hooks allow everything without looking at it; the SDK decodes each review.
package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/portcullis-mesh/portcullis/bridge"
	"github.com/portcullis-mesh/portcullis/bridge/outbound"
	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	"github.com/portcullis-mesh/portcullis/dispatcher/shadow"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/test/bench/https"
	"github.com/portcullis-mesh/portcullis/test/bench/pki"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// Hosts is who serves the hooks.
type Hosts int

// The kinds of hosts.
const (
	// SDK hosts are made with hostsdk, which decodes reviews and runs handlers.
	SDK Hosts = iota
	// Bare hosts answer without looking, which leaves the dispatcher's own time.
	Bare
	// Elsewhere are hosts that others start.
	Elsewhere
	// Webhooks are no hosts: the dispatcher calls webhooks over HTTPS.
	Webhooks
	// Adapted hosts forward calls to the same webhooks, over unix sockets.
	Adapted
	// Policies are no hosts: the dispatcher judges by a policy in the place of each hook.
	Policies
)

// here reports whether hosts are started for the mesh.
func (h Hosts) here() bool { return h == SDK || h == Bare || h == Adapted }

// Observation is the record of each review, beside metrics.
type Observation int

// The records of reviews.
const (
	// Records are the latency records of `portcullis analyze`, and the log lines of slow reviews.
	Records Observation = iota
	// NoRecords is nothing.
	NoRecords
	// RecordsAndTraces are Records, and the spans of one review in a hundred, here and in the hosts. They are made, batched and
	// dropped: the cost of a collector is not counted.
	RecordsAndTraces
)

// Options are the settings of a mesh.
type Options struct {
	// Scenario is the scenario of the reviews.
	Scenario scenario.Scenario
	// Keys are the certificates of the run.
	Keys *pki.PKI
	// Hosts serve the hooks. Only hosts of the SDK wait and patch.
	Hosts Hosts
	// Observation is the record of each review.
	Observation Observation
}

// Mesh is one dispatcher with its hosts. Close ends them.
type Mesh struct {
	scenario   scenario.Scenario
	keys       *pki.PKI
	known      *knowledge
	dispatcher *dispatcher.Dispatcher
	bridge     *bridge.Bridge
	grpc       *grpc.Server
	sessions   *session.Server
	router     *session.Router
	client     *https.Client // HTTP/1.1
	client2    *https.Client // HTTP/2
	address    string        // for hosts
	url        string
	request    *review.Request
	json       []byte
	calls      atomic.Int64
	webhooks   *webhooks // nil without
	traces     *traces   // nil without

	running   errgroup.Group
	stop      context.CancelFunc // of the parts beside the hosts
	hosts     errgroup.Group
	stopHosts context.CancelFunc
}

// Start starts everything, and returns when all hooks are in rotation.
func Start(ctx context.Context, o Options) (*Mesh, error) {
	m := &Mesh{scenario: o.Scenario, keys: o.Keys, client: https.NewClient(o.Keys), client2: https.NewHTTP2Client(o.Keys)}
	if o.Observation == RecordsAndTraces {
		m.traces = newTraces(ctx)
	}
	if o.Hosts == Webhooks || o.Hosts == Adapted {
		var err error
		if m.webhooks, err = startWebhooks(ctx, m, o.Hosts); err != nil {
			return nil, fmt.Errorf("mesh: %w", err)
		}
	}
	if err := errors.Join(m.wire(o), m.workload()); err != nil {
		return nil, fmt.Errorf("mesh: %w", err)
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	hosting, stopHosts := context.WithCancel(life)
	m.stop, m.stopHosts = stop, stopHosts
	err := m.serve(life)
	for i := 0; i < o.Scenario.Hosts && err == nil && o.Hosts.here(); i++ {
		for replica := 0; replica < max(1, o.Scenario.Replicas) && err == nil; replica++ {
			err = m.host(ctx, hosting, o.Hosts, place{i, replica})
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mesh: %w", err), m.Close())
	}
	return m, nil
}

// stage is the stage as messages have it.
func (m *Mesh) stage() admissionv1.Stage {
	if m.scenario.Stage == scenario.Mutate {
		return admissionv1.Stage_STAGE_MUTATE
	}
	return admissionv1.Stage_STAGE_VALIDATE
}

// workload makes the reviews.
func (m *Mesh) workload() error {
	request, err := m.scenario.Request()
	if err != nil {
		return err
	}
	m.request = &review.Request{Stage: m.stage(), Admission: request}
	m.json, err = m.scenario.Review()
	return err
}

// wire makes the parts, as newApp of internal/serve does.
func (m *Mesh) wire(o Options) error {
	var err error
	client := scenario.Client(scenario.Nowhere)
	if o.Hosts == Webhooks {
		client = m.webhooks.client
	}
	if m.known, err = newKnowledge(m.scenario, client, o.Hosts); err != nil {
		return err
	}
	metrics := prometheus.NewRegistry()
	if m.router, err = session.New(session.Options{Metrics: metrics}); err != nil {
		return err
	}
	m.router.Update(m.known.snapshot.Load())
	codec := builtin.New(builtin.Options{})
	judging := dispatcher.Options{
		Snapshots: m.known, Clusters: m.known, Streams: m.router, Capacity: m.router, Options: observe.Options{Metrics: metrics},
		Codec: func(a conversion.Allowance) chain.Codec { return codec.NewPatchSession(a) },
	}
	if o.Hosts == Webhooks {
		if m.webhooks.outbound, err = outbound.New(outbound.Options{Metrics: metrics, Networks: outbound.Loopback()}); err != nil {
			return err
		}
		judging.Webhooks = m.webhooks.outbound
	}
	edge := bridge.Options{Authorize: authorize, Registerer: metrics}
	if o.Observation != NoRecords {
		judging.Latencies, judging.Shadows, judging.Slow = latency.NewRecorder(0), shadow.NewRecorder(0), observe.DefaultSlow
	}
	if m.traces != nil {
		judging.TracerProvider, judging.KeptTraces, edge.TracerProvider = m.traces.sampled, m.traces.kept, m.traces.sampled
	}
	if m.dispatcher, err = dispatcher.New(judging); err != nil {
		return err
	}
	edge.Reviewer = m.dispatcher
	if m.bridge, err = bridge.New(edge); err != nil {
		return err
	}
	m.sessions = session.NewServer(m.router, caller)
	m.grpc = grpc.NewServer(append(session.ServerOptions(), grpc.Creds(credentials.NewTLS(m.keys.Server("h2"))))...)
	hostv1.RegisterHostServiceServer(m.grpc, m.sessions)
	return nil
}

// authorize lets the one client send reviews of the one cluster.
func authorize(who identity.Peer, cluster string) error {
	if who.Name() != pki.Identity || cluster != scenario.Cluster {
		return fmt.Errorf("%q may not send reviews of cluster %q", who.Name(), cluster)
	}
	return nil
}

// caller is the identity at the other end of a gRPC channel.
func caller(ctx context.Context) identity.Channel {
	p, _ := peer.FromContext(ctx)
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return identity.Peer{}
	}
	who, _ := identity.FromTLS(&info.State)
	return who
}

// serve serves both listeners until ctx ends and the gRPC server is stopped.
func (m *Mesh) serve(ctx context.Context) error {
	edge, err := bridge.NewServer(bridge.ServerOptions{Handler: m.bridge, TLS: m.keys.Server()})
	if err != nil {
		return err
	}
	var listening net.ListenConfig
	forHosts, err := listening.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	m.address = forHosts.Addr().String()
	m.running.Go(func() error { return m.grpc.Serve(stream.Listener(forHosts)) })
	m.running.Go(func() error { return m.router.Run(ctx) })
	forBridge, err := listening.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	m.running.Go(func() error { return edge.Serve(ctx, forBridge) })
	m.url = fmt.Sprintf("https://%s/v1/clusters/%s/%s?timeout=10s", forBridge.Addr(), scenario.Cluster, m.scenario.Stage)
	return nil
}

// Address is where hosts connect.
func (m *Mesh) Address() string { return m.address }

// Review judges the Pod by the dispatcher's Go API.
func (m *Mesh) Review(ctx context.Context) error {
	answer, err := m.dispatcher.Review(ctx, m.request)
	if err != nil {
		return fmt.Errorf("mesh: %w", err)
	}
	if !answer.Response.GetAllowed() || len(answer.Response.GetWarnings()) > 0 {
		return fmt.Errorf("mesh: the Pod was not simply admitted: %v", answer.Response)
	}
	if patched := len(answer.Response.GetPatch()) > 0; patched != (m.scenario.Patching > 0) {
		return fmt.Errorf("mesh: the Pod was patched: %t", patched)
	}
	return nil
}

// ReviewJSON judges the Pod by the bridge.
func (m *Mesh) ReviewJSON(ctx context.Context) error { return m.client.Post(ctx, m.url, m.json) }

// ReviewJSONByHTTP2 is ReviewJSON over one connection of HTTP/2.
func (m *Mesh) ReviewJSONByHTTP2(ctx context.Context) error {
	return m.client2.Post(ctx, m.url, m.json)
}

// Calls is how many calls hooks have had, of the hosts that were started here.
func (m *Mesh) Calls() int64 { return m.calls.Load() }

// Close ends the hosts, and then the dispatcher.
func (m *Mesh) Close() error {
	m.client.Close()
	m.client2.Close()
	m.stopHosts()
	err := m.hosts.Wait()
	m.grpc.Stop()
	m.stop()
	err = errors.Join(err, m.running.Wait())
	m.sessions.Wait()
	if m.traces != nil {
		err = errors.Join(err, m.traces.close())
	}
	if m.webhooks != nil {
		err = errors.Join(err, m.webhooks.close())
	}
	return err
}
