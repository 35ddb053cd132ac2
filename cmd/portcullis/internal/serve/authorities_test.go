package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/bridge"
	certscli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/certs"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	adminv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admin/v1"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

const (
	policyHost = "spiffe://mesh/policy"
	meshRoot   = "root"
)

// boundDocuments are two clusters, each with the CA of its API servers, and a hook for hosts of a third one.
const boundDocuments = `apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: a}
spec: {identities: [kube-apiserver-a], authorities: ["A"]}
---
apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: b}
spec: {identities: [kube-apiserver-b], authorities: ["B"]}
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: policy}
spec: {configuration: policy, stream: {}, hosts: [` + policyHost + `], authorities: ["HOSTS"], rotation: Immediate, clusters: [a]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: policy}
webhooks:
- name: policy.example.com
  clientConfig: {}
  failurePolicy: Fail
  rules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]
  sideEffects: None
  admissionReviewVersions: [v1]
`

// authorities are CAs that share one bundle, by the names of boundDocuments; OPERATORS is the CA of dev.
type authorities struct {
	t    *testing.T
	d    *dev
	info listen.ReadyInfo
	app  *app
	of   map[string]*certs.Authority
}

// newAuthorities serves boundDocuments with all authorities in the bundles of both listeners.
func newAuthorities(t *testing.T) *authorities {
	x := &authorities{t: t, of: map[string]*certs.Authority{}}
	x.app, x.d, x.info = appWithStore(t, func(d *dev, c *serveConfig) {
		var err error
		for _, name := range []string{"A", "B", "HOSTS"} {
			if x.of[name], err = certs.NewAuthority(name, 0); err != nil {
				t.Fatal(err)
			}
		}
		if x.of["OPERATORS"], err = certs.ReadAuthority(d.path("certs/ca.crt"), d.path("certs/ca.key")); err != nil {
			t.Fatal(err)
		}
		documents := boundDocuments
		for _, name := range []string{"A", "B", "HOSTS"} {
			documents = strings.ReplaceAll(documents, `"`+name+`"`, x.fingerprint(name))
		}
		if err := os.WriteFile(d.path("config/bound.yaml"), []byte(documents), 0o600); err != nil {
			t.Fatal(err)
		}
		c.tls.CA, c.hostsTLS.CA = d.path("all.crt"), d.path("hosts.crt")
		x.d = d
		x.trust(c.tls.CA, "A", "B", "HOSTS", "OPERATORS")
		x.trust(c.hostsTLS.CA, "A", "B", "HOSTS", "OPERATORS")
		c.stores.operator = identity.Grant{Names: []string{meshRoot}, Authorities: []string{x.fingerprint("OPERATORS")}}
	})
	x.info.CA = x.d.path("certs/ca.crt") // of the server
	return x
}

// trust writes a bundle.
func (x *authorities) trust(file string, names ...string) {
	x.t.Helper()
	var bundle []byte
	for _, name := range names {
		bundle = append(bundle, x.of[name].CA().CertPEM...)
	}
	if err := certs.WriteFile(file, bundle, 0o600); err != nil {
		x.t.Fatal(err)
	}
}

// fingerprint returns the fingerprint that `certs show` prints for an authority.
func (x *authorities) fingerprint(name string) string {
	x.t.Helper()
	file := filepath.Join(x.t.TempDir(), "ca.crt")
	if err := x.of[name].CA().WriteCert(file); err != nil {
		x.t.Fatal(err)
	}
	var shown string
	r := clitest.Execute(x.t, certscli.NewCommand(), nil, "show", file)
	for _, word := range strings.Fields(r.Out) {
		if strings.HasPrefix(word, "sha256:") {
			shown = word
		}
	}
	if shown == "" {
		x.t.Fatalf("no fingerprint in %s%s", r.Out, r.Notes)
	}
	return shown
}

// dial is a gRPC channel with a certificate of an authority.
func (x *authorities) dial(authority, name string) *grpc.ClientConn {
	x.t.Helper()
	cert, err := issue(x.t, x.of[authority], name).TLS()
	if err != nil {
		x.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(x.of["OPERATORS"].CA().CertPEM)
	conn, err := grpc.NewClient("passthrough:///"+x.info.Hosts, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: "localhost", Certificates: []tls.Certificate{cert},
	})))
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestAClusterIsSpokenForByItsOwnAuthority(t *testing.T) {
	t.Parallel()
	x := newAuthorities(t)
	for _, tc := range []struct {
		authority, name, cluster string
		want                     bool
	}{
		{"A", "kube-apiserver-a", "a", true},
		{"B", "kube-apiserver-b", "b", true},
		{"A", "kube-apiserver-b", "b", false},
		{"B", "kube-apiserver-a", "a", false},
		{"HOSTS", "kube-apiserver-b", "b", false},
		{"A", "kube-apiserver-a", "b", false},
	} {
		code, wantHTTP := codes.OK, http.StatusOK
		if !tc.want {
			code, wantHTTP = codes.PermissionDenied, http.StatusForbidden
		}
		o := operatorOf(t, x.info, issue(t, x.of[tc.authority], tc.name))
		if a := o.ask("POST", "/v1/clusters/"+tc.cluster+"/validate", clitest.Review); a.status != wantHTTP {
			t.Errorf("%+v: HTTP %+v", tc, a)
		}
		_, err := admissionv1.NewAdmissionServiceClient(x.dial(tc.authority, tc.name)).Review(t.Context(), &admissionv1.ReviewRequest{
			Stage: admissionv1.Stage_STAGE_VALIDATE, Request: &admissionv1.AdmissionRequest{Uid: "u", Cluster: tc.cluster, Operation: "CREATE"},
		})
		if got := status.Code(err); got != code {
			t.Errorf("%+v: gRPC %v", tc, err)
		}
	}
}

func TestAnOperatorIsMadeByTheAuthorityOfOperators(t *testing.T) {
	t.Parallel()
	x := newAuthorities(t)
	for authority, want := range map[string]codes.Code{"OPERATORS": codes.OK, "HOSTS": codes.PermissionDenied, "A": codes.PermissionDenied} {
		conn := x.dial(authority, meshRoot)
		if _, err := configv1.NewConfigServiceClient(conn).List(t.Context(), &configv1.ListRequest{}); status.Code(err) != want {
			t.Errorf("ConfigService for %s: %v", authority, err)
		}
		if _, err := adminv1.NewAdminServiceClient(conn).GetStale(t.Context(), &adminv1.GetStaleRequest{}); status.Code(err) != want {
			t.Errorf("AdminService for %s: %v", authority, err)
		}
		watch, err := configv1.NewConfigServiceClient(conn).Watch(t.Context(), &configv1.WatchRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); status.Code(err) != want {
			t.Errorf("a watch for %s: %v", authority, err)
		}
		wantHTTP := http.StatusOK
		if want != codes.OK {
			wantHTTP = http.StatusForbidden
		}
		if a := operatorOf(t, x.info, issue(t, x.of[authority], meshRoot)).ask("GET", "/v1/config/objects", ""); a.status != wantHTTP {
			t.Errorf("the gateway for %s: %+v", authority, a)
		}
	}
}

// hello opens a session that offers the hook, and returns how that stands.
func (x *authorities) hello(conn *grpc.ClientConn) (hostv1.HostService_ConnectClient, *hostv1.HookState) {
	x.t.Helper()
	stream, err := hostv1.NewHostServiceClient(conn).Connect(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	if err := stream.Send(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Hello{Hello: &hostv1.Hello{
		Host: "policy", Instance: "one", ProtocolMin: 1, ProtocolMax: 1,
		Hooks: []*hostv1.HookOffer{{Name: "policy.example.com", Stage: admissionv1.Stage_STAGE_VALIDATE}},
	}}}); err != nil {
		x.t.Fatal(err)
	}
	f, err := stream.Recv()
	if err != nil {
		x.t.Fatal(err)
	}
	return stream, f.GetWelcome().GetHooks()[0]
}

func TestAHookIsServedByHostsOfItsAuthority(t *testing.T) {
	x := newAuthorities(t)
	if _, state := x.hello(x.dial("HOSTS", policyHost)); state.GetState() != hostv1.State_STATE_IN_ROTATION {
		t.Errorf("a host of the authority: %v", state)
	}
	_, state := x.hello(x.dial("A", policyHost))
	if state.GetState() != hostv1.State_STATE_NOT_AUTHORIZED || !strings.Contains(state.GetMessage(), "spec.authorities") {
		t.Errorf("a host of another authority: %v", state)
	}
}

func TestWhatWasOpenedEndsWithItsAuthority(t *testing.T) {
	t.Parallel()
	x := newAuthorities(t)
	conn := x.dial("HOSTS", policyHost)
	session, _ := x.hello(conn)
	operator := configv1.NewConfigServiceClient(x.dial("OPERATORS", meshRoot))
	watch, err := operator.Watch(t.Context(), &configv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	watching := operatorOf(t, x.info, issue(t, x.of["OPERATORS"], meshRoot)).begin(t.Context(), "GET", "/v1/config/watch", "")
	defer watching.Body.Close()

	x.trust(x.app.config.hostsTLS.CA, "A") // the issuers of hosts and of operators are gone
	for err = nil; err == nil; _, err = watch.Recv() {
	}
	if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "not trusted any more") {
		t.Errorf("the watch ended with %v", err)
	}
	// The connections are open for lapsedGrace from now on.
	var trailer metadata.MD
	_, err = operator.List(t.Context(), &configv1.ListRequest{}, grpc.Trailer(&trailer))
	if status.Code(err) != codes.Unauthenticated || len(trailer.Get(bridge.UnjudgedTrailer)) == 0 {
		t.Errorf("a call on a connection that is open still: %v, %v", err, trailer)
	}
	if now := time.Now(); len(x.app.channels.lapsed(now)) > 0 || len(x.app.channels.lapsed(now.Add(lapsedGrace))) != 2 {
		t.Error("the connections are not closed when their grace is over")
	}
	rest, _ := io.ReadAll(watching.Body)
	if !strings.Contains(string(rest), `"error"`) {
		t.Errorf("the watch over HTTP ended with %.200s", rest)
	}
	for err = nil; err == nil; {
		var f *hostv1.ConnectResponse
		if f, err = session.Recv(); f.GetPing() != nil {
			_ = session.Send(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Pong{Pong: &hostv1.Pong{Seq: f.GetPing().GetSeq()}}})
		}
	}
	if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "not trusted any more") {
		t.Errorf("the session ended with %v", err)
	}
}

func TestAHostThatIsRenewedServesOn(t *testing.T) {
	t.Parallel()
	x := newAuthorities(t)
	renew := func(authority string) {
		if err := issue(t, x.of[authority], policyHost).Write(x.d.path("host.crt"), x.d.path("host.key")); err != nil {
			t.Fatal(err)
		}
	}
	renew("HOSTS")
	h, err := hostsdk.New(hostsdk.Options{
		Name: "policy", Dispatchers: []string{x.info.Hosts}, ServerName: "localhost", Logger: slog.New(slog.DiscardHandler),
		TLS: hostsdk.TLSFiles(x.d.path("host.crt"), x.d.path("host.key"), x.d.path("certs/ca.crt")),
	}, hostsdk.Validate("policy.example.com", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), nil }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	within(t, "the host", h.Ready())
	first := h.Status().Sessions[0].ID

	renew("B")
	documents, err := os.ReadFile(x.d.path("config/bound.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(documents), x.fingerprint("HOSTS"), x.fingerprint("B"))
	if err := os.WriteFile(x.d.path("config/bound.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	x.trust(x.app.config.hostsTLS.CA, "B", "OPERATORS") // the old issuer is taken out
	renewed := func() bool {
		return slices.ContainsFunc(h.Status().Sessions, func(s hostsdk.SessionStatus) bool {
			return s.ID != first && s.Hooks[0].State == hostsdk.StateInRotation
		})
	}
	for deadline := time.Now().Add(2 * time.Minute); !renewed(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the renewed host does not serve: %+v", h.Status())
		}
	}
	stop()
	if err := within(t, "the end of the host", done); err != nil {
		t.Error(err)
	}
}
