package gateway_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk/kube/initializers"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/config/embedded"
	configgateway "github.com/portcullis-mesh/portcullis/internal/config/gateway"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/initializer/gateway"
	"github.com/portcullis-mesh/portcullis/internal/initializer/service"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

const (
	patience = 2 * time.Minute // of a slow machine
	conf     = "conf/"         // of the initializers
	first    = "first.example.com"
	second   = "second.example.com"
)

// mesh are dispatchers with one etcd. grants has the identities that they know.
type mesh struct {
	*grants

	t         *testing.T
	etcd      *embedded.Server
	authority *certs.Authority
	uids      int
}

// newMesh is one without dispatchers. The controller "one" is granted the initializer first, "two" both, in cluster prod-1; "viewer"
// and "root" have roles.
func newMesh(t *testing.T) *mesh {
	t.Helper()
	etcd, err := embedded.Start(t.Context(), embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	authority, err := certs.NewAuthority("mesh", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	in := []string{"prod-1"}
	return &mesh{t: t, etcd: etcd, authority: authority, grants: &grants{next: make(chan struct{}), of: map[string]service.Access{
		"one":    {Initializers: []service.Initializer{{Pending: conf + first, Clusters: in}}},
		"two":    {Initializers: []service.Initializer{{Pending: conf + first, Clusters: in}, {Pending: conf + second, Clusters: in}}},
		"viewer": {Reader: true}, "root": {Reader: true, Operator: true},
	}}}
}

// grants are the grants of a configuration.
type grants struct {
	mu   sync.Mutex
	of   map[string]service.Access
	next chan struct{}
}

func (g *grants) Access(caller identity.Peer) service.Access {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.of[caller.Name()]
}

func (*grants) Configured(_, name string) []string {
	if name == first || name == second {
		return []string{conf + name}
	}
	return nil
}

func (g *grants) Next() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.next
}

// grant puts another configuration in force.
func (g *grants) grant(caller string, a service.Access) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.of[caller] = a
	close(g.next)
	g.next = make(chan struct{})
}

// pair is a certificate for a name, on this machine.
func (m *mesh) pair(name string) certs.Pair {
	m.t.Helper()
	pair, err := m.authority.Issue(certs.Spec{Identity: name, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true, Client: true})
	if err != nil {
		m.t.Fatal(err)
	}
	return pair
}

// tls is a configuration of both ends, with a certificate for a name.
func (m *mesh) tls(name string) *tls.Config {
	m.t.Helper()
	cert, err := m.pair(name).TLS()
	if err != nil {
		m.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(m.authority.Certificate())
	return &tls.Config{
		Certificates: []tls.Certificate{cert}, RootCAs: pool, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS13,
	}
}

// dispatcher is a dispatcher as far as staged objects go.
type dispatcher struct {
	store   *staged.Store
	service *service.Service
	http    string // addresses
	grpc    string
	stop    func() // may be called more than once
}

// dispatcher starts one, which ends with the test.
func (m *mesh) dispatcher() *dispatcher {
	m.t.Helper()
	store, err := staged.New(staged.Options{Client: m.etcd.Client()})
	if err != nil {
		m.t.Fatal(err)
	}
	s, err := service.New(service.Options{Store: store, Grants: m.grants, Identity: callerOf})
	if err != nil {
		m.t.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{
		Service: s, Caller: func(ctx context.Context) string { return callerOf(ctx).Name() },
		Identify: func(r *http.Request) (context.Context, func()) { return configgateway.Identify(r, verified) },
	})
	if err != nil {
		m.t.Fatal(err)
	}
	web := httptest.NewUnstartedServer(g)
	web.TLS, web.EnableHTTP2 = m.tls("dispatcher"), true
	web.StartTLS()
	l, err := (&net.ListenConfig{}).Listen(m.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		m.t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(m.tls("dispatcher"))))
	initializerv1.RegisterInitializerServiceServer(server, s)
	ctx, cancel := context.WithCancel(m.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = store.Run(ctx) })
	running.Go(func() { _ = server.Serve(l) })
	stop := sync.OnceFunc(func() {
		s.Drain()
		server.Stop()
		web.CloseClientConnections()
		web.Close()
		cancel()
		running.Wait()
	})
	m.t.Cleanup(stop)
	return &dispatcher{store, s, web.Listener.Addr().String(), l.Addr().String(), stop}
}

// verified is the identity of a connection that the handshake has verified.
func verified(state *tls.ConnectionState) identity.Channel {
	who, _ := identity.FromChains(state.VerifiedChains)
	return who
}

// callerOf is the caller of a call of either listener.
func callerOf(ctx context.Context) (who identity.Peer) {
	if p, ok := peer.FromContext(ctx); ok {
		switch info := p.AuthInfo.(type) {
		case identity.Channel:
			who, _ = info.Identity()
		case credentials.TLSInfo:
			who, _ = identity.FromChains(info.State.VerifiedChains)
		}
	}
	return who
}

// clientConfig is the configuration of a controller written with client-go: the path of staged objects, and its identity.
func (m *mesh) clientConfig(d *dispatcher, who string) *rest.Config {
	m.t.Helper()
	pair := m.pair(who)
	return &rest.Config{
		Host:            "https://" + d.http + initializers.Path("prod-1"),
		TLSClientConfig: rest.TLSClientConfig{CAData: m.authority.CA().CertPEM, CertData: pair.CertPEM, KeyData: pair.KeyPEM},
		QPS:             -1,
	}
}

// controller is clientConfig for a client that also wants uninitialized objects.
func (m *mesh) controller(d *dispatcher, who string) *rest.Config {
	config := m.clientConfig(d, who)
	config.Wrap(initializers.IncludeUninitialized)
	return config
}

func (m *mesh) dynamic(config *rest.Config) *dynamic.DynamicClient {
	m.t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(client.CloseIdleConnections)
	c, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

// dial is a client of InitializerService.
func (m *mesh) dial(d *dispatcher, who string) initializerv1.InitializerServiceClient {
	m.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+d.grpc, grpc.WithTransportCredentials(credentials.NewTLS(m.tls(who))))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = conn.Close() })
	return initializerv1.NewInitializerServiceClient(conn)
}

// podKey is the key of a Pod in shop.
func podKey(name string) *initializerv1.StagedKey {
	return &initializerv1.StagedKey{
		Cluster: "prod-1", Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "shop", Name: name,
	}
}

// stage has a dispatcher hold a Pod.
func (m *mesh) stage(d *dispatcher, name string, pending ...string) *initializerv1.StagedObject {
	m.t.Helper()
	m.uids++
	now, ids := time.Now(), make([]string, len(pending))
	for i, name := range pending {
		ids[i] = conf + name
	}
	o, _, err := d.store.Create(m.t.Context(), &initializerv1.StagedObject{
		Key: podKey(name), Uid: fmt.Sprintf("uid-%d", m.uids), Kind: &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Pending: ids,
		Creator: &admissionv1.UserInfo{Username: "jane"}, Created: timestamppb.New(now), Waiting: timestamppb.New(now), Expires: timestamppb.New(now.Add(time.Hour)),
		Object:    &admissionv1.Object{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `","namespace":"shop","labels":{"app":"` + name + `"}},"spec":{"containers":[]}}`)},
		ReviewUid: "r-" + name, DispatcherId: "d",
	}, time.Hour)
	if err != nil {
		m.t.Fatal(err)
	}
	return o
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); !holds(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%s: not in time", what)
		}
	}
}
