package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// authority issues the certificates of one test.
func authority(t testing.TB) *certs.Authority {
	t.Helper()
	ca, err := certs.NewAuthority("outbound test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// issue is a certificate of ca.
func issue(t testing.TB, ca *certs.Authority, spec certs.Spec) certs.Pair {
	t.Helper()
	pair, err := ca.Issue(spec)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// presenting makes a server present a certificate for names.
func presenting(t testing.TB, ca *certs.Authority, names ...string) func(*httptest.Server) {
	t.Helper()
	cert, err := issue(t, ca, certs.Spec{DNSNames: names, Server: true}).TLS()
	if err != nil {
		t.Fatal(err)
	}
	return func(s *httptest.Server) { s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}} }
}

// resolverFunc is a Resolver of one function.
type resolverFunc func(Service) (string, error)

func (f resolverFunc) Resolve(_ context.Context, s Service) (string, error) { return f(s) }

func TestAServiceIsCalledByItsNameAtItsAddress(t *testing.T) {
	ca := authority(t)
	hosts := make(chan [2]string, 1)
	answer := allowing(t)
	w := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		hosts <- [2]string{r.Host + r.URL.Path, r.TLS.ServerName}
		answer(rw, r)
	}, presenting(t, ca, "hook.policies.svc"))
	w.ca = ca.CA().CertPEM
	address := w.Listener.Addr().String()
	var resolved atomic.Pointer[Service]
	c := newClient(t, Options{Resolver: resolverFunc(func(s Service) (string, error) {
		resolved.Store(&s)
		return address, nil
	})})
	h := service(w.hook("/"), "policies", "hook")
	path, port := "/validate/", int32(8443)

	want(t, ask(t, c, h), "allowed")
	if diff := cmp.Diff([2]string{"hook.policies.svc:443/", "hook.policies.svc"}, <-hosts); diff != "" {
		t.Errorf("host and server name (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&Service{Cluster: "prod-1", Namespace: "policies", Name: "hook", Port: 443}, resolved.Load()); diff != "" {
		t.Errorf("resolved (-want +got):\n%s", diff)
	}
	h.ClientConfig.Service.Path, h.ClientConfig.Service.Port = &path, &port
	want(t, ask(t, c, h), "allowed")
	if diff := cmp.Diff([2]string{"hook.policies.svc:8443/validate", "hook.policies.svc"}, <-hosts); diff != "" {
		t.Errorf("host and server name (-want +got):\n%s", diff)
	}
	want(t, ask(t, c, service(h, "policies", "other")), "unavailable") // Its certificate is another one's.
}

func TestAServiceThatCannotBeResolvedIsUnavailable(t *testing.T) {
	w := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	got := ask(t, newClient(t, Options{Resolver: Table{}}), service(w.hook("/"), "policies", "hook"))
	want(t, got, "unavailable")
	if !got[0].Failure.NotStarted || !strings.Contains(got[0].Failure.Error(), "policies/hook") {
		t.Errorf("failure %v", got[0].Failure)
	}
}

func TestFailuresToConnectSayWhatToDo(t *testing.T) {
	w := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	empty := *w.hook("/")
	empty.ClientConfig.CABundle = []byte("-----BEGIN NOTHING-----\n")
	nowhere := resolverFunc(func(Service) (string, error) { return "no-such-host.invalid:443", nil })
	for text, got := range map[string][]review.Result{
		"DNS here does not know the service policies/hook: write its address down": ask(t, newClient(t, Options{Resolver: nowhere}), service(w.hook("/"), "policies", "hook")),
		"the caBundle of the hook holds no certificate":                            ask(t, newClient(t, Options{}), &empty),
	} {
		want(t, got, "unavailable")
		if !strings.Contains(got[0].Failure.Error(), text) {
			t.Errorf("failure %v, want %q in it", got[0].Failure, text)
		}
	}
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	w := serve(t, allowing(t))
	metrics := prometheus.NewRegistry()
	c := newClient(t, Options{Metrics: metrics})
	for range 20 {
		want(t, ask(t, c, w.hook("/a")), "allowed")
		want(t, ask(t, c, w.hook("/b")), "allowed") // Of the same target.
	}
	if n := w.opened(); n != 1 {
		t.Errorf("%d connections for calls one after the other", n)
	}
	if err := testutil.GatherAndCompare(metrics, strings.NewReader(`
# HELP portcullis_webhook_connections_opened_total Connections that were opened to webhooks.
# TYPE portcullis_webhook_connections_opened_total counter
portcullis_webhook_connections_opened_total 1
# HELP portcullis_webhook_targets Addresses of webhooks that are remembered.
# TYPE portcullis_webhook_targets gauge
portcullis_webhook_targets 1
`), "portcullis_webhook_connections_opened_total", "portcullis_webhook_targets"); err != nil {
		t.Error(err)
	}
}

func TestAConnectionIsUsedAgainAfterAnError(t *testing.T) {
	w := serve(t, saying(t, http.StatusInternalServerError, nil, "boom"))
	c := newClient(t, Options{})
	for range 5 {
		want(t, ask(t, c, w.hook("/")), "handler")
	}
	if n := w.opened(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestOnlyThisMachineIsSpokenToInHTTP2(t *testing.T) {
	ca := authority(t)
	protocols := make(chan string, 1)
	answer := allowing(t)
	w := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		protocols <- r.Proto
		answer(rw, r)
	}, presenting(t, ca, "localhost", "hook.policies.svc", "hooks.example.com"), func(s *httptest.Server) { s.EnableHTTP2 = true })
	w.ca = ca.CA().CertPEM
	_, port, _ := net.SplitHostPort(w.Listener.Addr().String())
	at := func(host string) *match.Hook {
		h := *w.hook("/")
		url := "https://" + net.JoinHostPort(host, port)
		h.ClientConfig.URL = &url
		return &h
	}
	c := newClient(t, Options{Resolver: resolverFunc(func(Service) (string, error) { return w.Listener.Addr().String(), nil })})
	want(t, ask(t, c, at("localhost")), "allowed")
	if p := <-protocols; p != "HTTP/2.0" {
		t.Errorf("localhost: %s", p)
	}
	want(t, ask(t, c, service(w.hook("/"), "policies", "hook")), "allowed")
	if p := <-protocols; p != "HTTP/1.1" {
		t.Errorf("a service: %s", p)
	}
	for host, http2 := range map[string]bool{
		"LocalHost": true, "127.0.0.1": true, "::1": true, "127.9.9.9": true,
		"hooks.example.com": false, "10.0.0.1": false, "localhost.example.com": false,
	} {
		e, err := c.locate(t.Context(), "", &at(host).ClientConfig)
		if err != nil {
			t.Fatal(err)
		}
		if e.takesHTTP2() != http2 {
			t.Errorf("%s: HTTP/2 %v", host, !http2)
		}
	}
}

func TestHTTP2CarriesManyCallsOverOneConnection(t *testing.T) {
	w := serve(t, allowing(t), func(s *httptest.Server) { s.EnableHTTP2 = true })
	c := newClient(t, Options{})
	want(t, ask(t, c, w.hook("/")), "allowed")
	hooks := make([]*match.Hook, 50)
	kinds := make([]string, len(hooks))
	for i := range hooks {
		hooks[i], kinds[i] = w.hook("/"), "allowed"
	}
	want(t, ask(t, c, hooks...), kinds...)
	if n := w.opened(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestTheServerHasToBeTrusted(t *testing.T) {
	w := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	stranger := *w.hook("/")
	stranger.ClientConfig.CABundle = authority(t).CA().CertPEM
	system := *w.hook("/")
	system.ClientConfig.CABundle = nil
	named := *w.hook("/")
	url := strings.Replace(w.URL, "127.0.0.1", "localhost", 1) // Not a name of httptest's certificate.
	named.ClientConfig.URL = &url
	got := ask(t, newClient(t, Options{}), &stranger, &system, &named)
	want(t, got, "unavailable", "unavailable", "unavailable")
	for _, r := range got {
		if !r.Failure.NotStarted {
			t.Errorf("%v counts as started", r.Failure)
		}
	}
}

func TestTLS12IsTheLeast(t *testing.T) {
	for version, kind := range map[uint16]string{tls.VersionTLS11: "unavailable", tls.VersionTLS12: "allowed", tls.VersionTLS13: "allowed"} {
		w := serve(t, allowing(t), func(s *httptest.Server) {
			s.TLS = &tls.Config{MinVersion: version, MaxVersion: version}
		})
		want(t, ask(t, newClient(t, Options{}), w.hook("/")), kind)
	}
}

// kubeconfigFor writes a kubeconfig of users.
func kubeconfigFor(t testing.TB, users string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Config\nusers:\n"+users), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTheClientIsWhomTheKubeconfigSays(t *testing.T) {
	ca := authority(t)
	dir := t.TempDir()
	write := func(name string) {
		pair := issue(t, ca, certs.Spec{Identity: name, Client: true})
		if err := pair.Write(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")); err != nil {
			t.Fatal(err)
		}
	}
	write("mesh")
	tokenFile := filepath.Join(dir, "token")
	if err := os.WriteFile(tokenFile, []byte("t2"), 0o600); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.CA().CertPEM)
	callers := make(chan [2]string, 1)
	answer := allowing(t)
	w := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		name, _ := identity.FromTLS(r.TLS)
		callers <- [2]string{name.Name(), r.Header.Get("Authorization")}
		answer(rw, r)
	}, presenting(t, ca, "a.policies.svc", "b.policies.svc", "c.policies.svc", "d.tokens.svc", "e.other.svc", "f.elsewhere.svc", "kubernetes.default.svc"),
		func(s *httptest.Server) { s.TLS.ClientAuth, s.TLS.ClientCAs = tls.VerifyClientCertIfGiven, pool })
	w.ca = ca.CA().CertPEM
	identities, err := Kubeconfig(kubeconfigFor(t, `
- name: "a.policies.svc:443"
  user: {token: t1}
- name: b.policies.svc
  user: {client-certificate: "`+dir+`/tls.crt", client-key: "`+dir+`/tls.key"}
- name: "*.tokens.svc"
  user: {tokenFile: "`+tokenFile+`"}
- name: "*.other.svc:443"
  user: {username: me, password: secret}
- name: "*"
  user: {username: you, password: secret, client-certificate: "`+dir+`/tls.crt", client-key: "`+dir+`/tls.key"}
`))
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, Options{Identities: identities, Resolver: resolverFunc(func(Service) (string, error) { return w.Listener.Addr().String(), nil })})
	for _, test := range []struct {
		namespace, name string
		caller          [2]string
	}{
		{"policies", "a", [2]string{"", "Bearer t1"}},
		{"policies", "b", [2]string{"mesh", ""}},
		{"tokens", "d", [2]string{"", "Bearer t2"}},
		{"other", "e", [2]string{"", "Basic bWU6c2VjcmV0"}},
		{"elsewhere", "f", [2]string{"mesh", ""}},
		{"default", "kubernetes", [2]string{"", ""}},
	} {
		want(t, ask(t, c, service(w.hook("/"), test.namespace, test.name)), "allowed")
		if diff := cmp.Diff(test.caller, <-callers); diff != "" {
			t.Errorf("caller of %s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestAKubeconfigThatCannotBeReadIsAnError(t *testing.T) {
	if _, err := Kubeconfig(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("no error")
	}
}

// TestACertificateThatIsMissingIsLookedForAgain: a failure to prepare a target is not remembered.
func TestACertificateThatIsMissingIsLookedForAgain(t *testing.T) {
	ca := authority(t)
	dir := t.TempDir()
	w := serve(t, allowing(t))
	identities, err := Kubeconfig(kubeconfigFor(t, `
- name: "*"
  user: {client-certificate: "`+dir+`/tls.crt", client-key: "`+dir+`/tls.key"}
`))
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, Options{Identities: identities})
	got := ask(t, c, w.hook("/"))
	want(t, got, "unavailable")
	if !strings.Contains(got[0].Failure.Error(), "tls.crt") {
		t.Errorf("it does not say what is missing: %v", got[0].Failure)
	}
	if err := issue(t, ca, certs.Spec{Identity: "mesh", Client: true}).Write(dir+"/tls.crt", dir+"/tls.key"); err != nil {
		t.Fatal(err)
	}
	want(t, ask(t, c, w.hook("/")), "allowed")
}

// TestTheAddressThatTheOperatorWroteIsDialled by a proxy too, and not the name of the service. NO_PROXY may have either of them.
func TestTheAddressThatTheOperatorWroteIsDialled(t *testing.T) {
	ca := authority(t)
	w := serve(t, allowing(t), presenting(t, ca, "hook.policies.svc", "localhost"))
	written := w.Listener.Addr().String()
	byService := service(w.hook("/"), "policies", "hook")
	byService.ClientConfig.CABundle = ca.CA().CertPEM
	byURL := func(url string) *match.Hook {
		h := *byService
		h.ClientConfig.Service, h.ClientConfig.URL = nil, &url
		return &h
	}
	for name, test := range map[string]struct {
		hook    *match.Hook
		noProxy string // the host that is called without a proxy
		connect string // empty if the webhook is called without a proxy
	}{
		"an address, by a proxy":           {byService, "", written},
		"no proxy for the address":         {byService, "127.0.0.1", ""},
		"no proxy for the service":         {byService, "hook.policies.svc", ""},
		"no proxy for another":             {byService, "other.policies.svc", written},
		"a URL, by a proxy":                {byURL("https://hooks.example.com/x"), "127.0.0.1", "hooks.example.com:443"},
		"a URL with a port, by a proxy":    {byURL("https://hooks.example.com:8443"), "", "hooks.example.com:8443"},
		"no proxy for the host of the URL": {byURL(strings.Replace(w.URL, "127.0.0.1", "localhost", 1)), "localhost", ""},
	} {
		t.Run(name, func(t *testing.T) {
			connects := make(chan string, 1)
			proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				connects <- r.Method + " " + r.Host
				http.Error(rw, "not today", http.StatusBadGateway)
			}))
			t.Cleanup(proxy.Close)
			to, err := url.Parse(strings.Replace(proxy.URL, "//", "//user:secret@", 1))
			if err != nil {
				t.Fatal(err)
			}
			c := newClient(t, Options{
				proxy: func(r *http.Request) (*url.URL, error) {
					by := to
					if r.URL.Hostname() == test.noProxy {
						by = nil
					}
					return by, nil
				},
				Resolver: resolverFunc(func(Service) (string, error) { return written, nil }),
			})
			got := ask(t, c, test.hook)
			if test.connect == "" {
				want(t, got, "allowed")
				return
			}
			want(t, got, "unavailable")
			if connect := <-connects; connect != "CONNECT "+test.connect {
				t.Errorf("the proxy got %s, want CONNECT %s", connect, test.connect)
			}
			said := got[0].Failure.Error()
			through := "through the proxy " + to.Redacted() + ": it answered CONNECT " + test.connect + " with HTTP 502 Bad Gateway"
			if !got[0].Failure.NotStarted || !strings.HasSuffix(said, through) || strings.Contains(said, "secret") {
				t.Errorf("not started %t: %s, want it to end with %q", got[0].Failure.NotStarted, said, through)
			}
		})
	}
}

// TestAProxyThatIsNotThereIsNamed, whatever is wrong with it.
func TestAProxyThatIsNotThereIsNamed(t *testing.T) {
	w := serve(t, allowing(t))
	garbage := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		inner, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = inner.Write([]byte("SSH-2.0\r\n"))
		_ = inner.Close()
	}))
	t.Cleanup(garbage.Close)
	for name, proxy := range map[string]string{
		"nothing listens": "http://127.0.0.1:1", "no HTTP": garbage.URL, "no TLS": strings.Replace(garbage.URL, "http:", "https:", 1),
		"unknown to DNS": "http://proxy.invalid:3128",
	} {
		to, err := url.Parse(proxy)
		if err != nil {
			t.Fatal(err)
		}
		c := newClient(t, Options{proxy: http.ProxyURL(to)})
		got := ask(t, c, service(w.hook("/"), "policies", "hook"))
		want(t, got, "unavailable")
		if said := got[0].Failure.Error(); !strings.Contains(said, "through the proxy "+proxy+": ") {
			t.Errorf("%s: %s", name, said)
		}
	}
}

func TestIdentitiesAreAskedByHostAndPort(t *testing.T) {
	for raw, hostPort := range map[string]string{
		"https://hooks.example.com/x": "hooks.example.com:443", "https://hooks.example.com:8443": "hooks.example.com:8443",
		"https://[::1]/x": "[::1]:443",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := (&endpoint{url: *u}).hostPort(); got != hostPort {
			t.Errorf("%s: %s, want %s", raw, got, hostPort)
		}
	}
}

func TestWebhooksOfTheAPIServerAreCalledAsNobody(t *testing.T) {
	k, err := Kubeconfig(kubeconfigFor(t, "- {name: \"*.default.svc\", user: {token: t}}\n- {name: \"*.svc:8443\", user: {token: t}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	byURL, err := k.ClientConfigFor("kubernetes.default.svc:443")
	if err != nil || byURL.BearerToken != "" {
		t.Errorf("by URL: %v, error %v", byURL, err)
	}
	other, err := k.ClientConfigFor("kubernetes.default.svc:8443")
	if err != nil || other.BearerToken != "t" {
		t.Errorf("at another port: %v, error %v", other, err)
	}
}

func TestTablesAreSearchedFromTheParticularToTheGeneral(t *testing.T) {
	table := Table{Addresses: map[Service]string{
		{Cluster: "c", Namespace: "n", Name: "s", Port: 1}: "cluster and port",
		{Cluster: "c", Namespace: "n", Name: "s"}:          "cluster",
		{Namespace: "n", Name: "s", Port: 2}:               "port",
		{Namespace: "n", Name: "s"}:                        "any",
	}, Next: ClusterDNS{}}
	for s, address := range map[Service]string{
		{"c", "n", "s", 1}: "cluster and port", {"c", "n", "s", 2}: "cluster", {"d", "n", "s", 2}: "port", {"d", "n", "s", 3}: "any",
		{"c", "n", "t", 1}: "t.n.svc:1",
	} {
		if got, err := table.Resolve(t.Context(), s); got != address || err != nil {
			t.Errorf("%v: %q (%v), want %q", s, got, err, address)
		}
	}
}
