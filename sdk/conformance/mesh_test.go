package conformance_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	meshsession "github.com/portcullis-mesh/portcullis/dispatcher/session"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

const hostIdentity = "spiffe://conformance.example/host"

// node is the real dispatcher, behind TLS on loopback.
type node struct {
	*stage

	addr       string
	dispatcher *dispatcher.Dispatcher
	registry   *meshsession.Router
	snapshot   atomic.Pointer[match.Snapshot]
	stop       func() // kills it
}

var (
	_ dispatcher.Snapshots = (*node)(nil)
	_ dispatcher.Clusters  = (*node)(nil)
)

// Acquire implements [dispatcher.Snapshots].
func (n *node) Acquire(context.Context, string, int64) (*match.Snapshot, string, error) {
	return n.snapshot.Load(), "", nil
}

// Release implements [dispatcher.Snapshots].
func (*node) Release(*match.Snapshot) {}

// Cluster implements [dispatcher.Clusters].
func (*node) Cluster(string) match.Cluster { return unknownCluster{} }

type unknownCluster struct{ match.Unknown }

// nodeOptions are how a node starts.
type nodeOptions struct {
	addr  string // to listen at; empty means a free port
	id    string
	hooks []meshHook
}

// meshHook is a hook as the mesh knows it: it fails closed, and has no side effects.
type meshHook struct {
	name        string
	mutates     bool
	initializes bool
	speculate   bool
	pending     bool // no host has been ready for it yet
	time        time.Duration
	grantedTo   string // identity; empty means hostIdentity
}

// usualHooks are the two hooks of a test host.
func usualHooks() []meshHook { return []meshHook{{name: validating}, {name: mutating, mutates: true}} }

// node starts a real dispatcher, which ends with the case.
func (t *trust) node(o nodeOptions) *node {
	t.Helper()
	n := &node{stage: t.stage}
	n.registry = must[*meshsession.Router](t.stage)(meshsession.New(meshsession.Options{ID: o.id}))
	n.configure(o.hooks)
	options := dispatcher.Options{Snapshots: n, Clusters: n, Streams: n.registry, Capacity: n.registry}
	if slices.ContainsFunc(o.hooks, func(h meshHook) bool { return h.initializes }) {
		options.Stager = t.stager(cmp.Or(o.id, "d1"))
	}
	n.dispatcher = must[*dispatcher.Dispatcher](t.stage)(dispatcher.New(options))
	hosts := meshsession.NewServer(n.registry, channelOf)
	server := grpc.NewServer(append(meshsession.ServerOptions(), grpc.Creds(credentials.NewTLS(t.server(serverName))))...)
	hostv1.RegisterHostServiceServer(server, hosts)
	lis := t.listen(o.addr)
	n.addr = lis.Addr().String()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = n.registry.Run(ctx) })
	running.Go(func() { _ = server.Serve(lis) })
	n.stop = sync.OnceFunc(func() {
		server.Stop()
		stop()
		running.Wait()
		hosts.Wait()
	})
	t.Cleanup(n.stop)
	return n
}

// channelOf is who is at the other end of a stream.
func channelOf(ctx context.Context) identity.Channel {
	p, _ := peer.FromContext(ctx)
	info, _ := p.AuthInfo.(credentials.TLSInfo)
	who, _ := identity.FromTLS(&info.State)
	return who
}

// configure gives the mesh its hooks.
func (n *node) configure(hooks []meshHook) {
	n.Helper()
	v := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
	mutating := map[string]*admissionregistrationv1.MutatingWebhookConfiguration{
		"m": {ObjectMeta: metav1.ObjectMeta{Name: "m"}}, "i": {ObjectMeta: metav1.ObjectMeta{Name: "i"}},
	}
	in := match.Input{Revision: fmt.Sprint(len(hooks))}
	var pending []string
	for _, h := range hooks {
		configuration, policy, none := h.configuration(), admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone
		rules := []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{h.operations()},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}}
		if m := mutating[configuration]; m != nil {
			m.Webhooks = append(m.Webhooks, admissionregistrationv1.MutatingWebhook{Name: h.name, FailurePolicy: &policy, SideEffects: &none, Rules: rules})
		} else {
			v.Webhooks = append(v.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: h.name, FailurePolicy: &policy, SideEffects: &none, Rules: rules})
		}
		in.Routes = append(in.Routes, match.RouteBinding{Configuration: configuration, Hook: h.name, Route: match.Route{
			Stream: true, Hosts: []string{cmp.Or(h.grantedTo, hostIdentity)}, Timeout: h.time, Speculate: h.speculate,
		}})
		if h.pending {
			pending = append(pending, h.name)
		}
	}
	in.Objects = []match.Object{
		{Validating: v, Pending: pending}, {Mutating: mutating["m"], Pending: pending}, {Mutating: mutating["i"], Pending: pending, Initializes: true},
	}
	snapshot, findings := match.Compile(in)
	for _, f := range findings {
		if f.Severity == match.SeverityError {
			n.Fatal(f)
		}
	}
	n.snapshot.Store(snapshot)
	n.registry.Update(snapshot)
}

// configuration is the name of the configuration that has the hook.
func (h meshHook) configuration() string {
	switch {
	case h.initializes:
		return "i"
	case h.mutates:
		return "m"
	default:
		return "v"
	}
}

// operations are the operations of the hook; all but for an initializer.
func (h meshHook) operations() admissionregistrationv1.OperationType {
	if h.initializes {
		return admissionregistrationv1.Create
	}
	return admissionregistrationv1.OperationAll
}

// sessions is how many sessions there are.
func (n *node) sessions() int {
	hosts, _ := n.registry.Hosts(meshsession.HostPage{Limit: 100})
	return len(hosts)
}

// review judges a request.
func (n *node) review(stage admissionv1.Stage, request *admissionv1.AdmissionRequest) review.Answer {
	n.Helper()
	return must[review.Answer](n.stage)(n.tryReview(stage, request))
}

func (n *node) tryReview(stage admissionv1.Stage, request *admissionv1.AdmissionRequest) (review.Answer, error) {
	ctx, done := context.WithTimeout(n.Context(), *patience)
	defer done()
	return n.dispatcher.Review(ctx, &review.Request{Stage: stage, Explain: true, Admission: request})
}

// load is reviews that go on until it is stopped.
type load struct {
	halt    chan struct{}
	workers sync.WaitGroup
	done    atomic.Int64
	failed  record[string]
}

// load starts reviews of a script, so many at a time.
func (n *node) load(workers int, script string) *load {
	l := &load{halt: make(chan struct{})}
	for range workers {
		l.workers.Go(func() {
			for {
				select {
				case <-l.halt:
					return
				default:
				}
				switch a, err := n.tryReview(validateStage, pod(script)); {
				case err != nil:
					l.failed.add(err.Error())
				case !a.Response.GetAllowed():
					l.failed.add(fmt.Sprintf("%v, by %+v", a.Response, a.Outcomes))
				}
				l.done.Add(1)
			}
		})
	}
	return l
}

// more waits until so many more reviews have ended.
func (l *load) more(s *stage, reviews int64) {
	s.Helper()
	goal := l.done.Load() + reviews
	s.until(fmt.Sprintf("%d reviews more", reviews), func() bool { return l.done.Load() >= goal })
}

// stop ends the load. No review may have failed.
func (l *load) stop(s *stage) {
	s.Helper()
	close(l.halt)
	l.workers.Wait()
	if failures := l.failed.all(); len(failures) > 0 {
		s.Errorf("%d of %d reviews failed: %v", len(failures), l.done.Load(), slices.Compact(slices.Sorted(slices.Values(failures[:min(len(failures), 20)]))))
	}
}
