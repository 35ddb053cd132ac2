package adapt

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

func TestTheFlagsOfAdapt(t *testing.T) {
	complete := []string{
		"--name=n", "--dispatcher=mesh:8444", "--cert=a", "--key=b", "--ca=c", "--validate=h.example.com=http://127.0.0.1:1/v",
	}
	for want, args := range map[string][]string{
		"adapt needs --name, --dispatcher, --cert, --key, --ca, --validate or --mutate;": nil,
		`--validate: "h": want HOOK=URL`:                                                 append([]string{"--validate=h"}, complete...),
		`--validate: h: "ftp://x/": want http://`:                                        append([]string{"--validate=h=ftp://x/"}, complete...),
		"--mutate: h: \"http://10.0.0.1/\": reviews leave":                               append([]string{"--mutate=h=http://10.0.0.1/"}, complete...),
		"--validate: h.example.com is there twice":                                       append([]string{"--validate=h.example.com=unix:///a:/"}, complete...),
		`--review-version: "v2": give v1`:                                                append([]string{"--review-version=v2"}, complete...),
		"--review-version: neither --validate nor --mutate has x":                        append([]string{"--review-version=x=v1"}, complete...),
		"--review-version: m mutates":                                                    append([]string{"--mutate=m=unix:///a:/", "--review-version=v1alpha1"}, complete...),
		`--side-effects: "Some": give None or NoneOnDryRun`:                              append([]string{"--side-effects=Some"}, complete...),
		"--side-effects: neither --validate nor --mutate has x":                          append([]string{"--side-effects=x=None"}, complete...),
		"--speculate: --mutate has no h.example.com":                                     append([]string{"--speculate=h.example.com"}, complete...),
		"--slots: give 1 to --max-outstanding":                                           append([]string{"--slots=65"}, complete...),
		"--max-outstanding: give 1 or more":                                              append([]string{"--max-outstanding=0"}, complete...),
		"--slow: name a duration":                                                        append([]string{"--slow=-1s"}, complete...),
		"--max-review-bytes: give 1 or more":                                             append([]string{"--max-review-bytes=0"}, complete...),
		"--drain-timeout: name a duration":                                               append([]string{"--drain-timeout=0s"}, complete...),
		"--ready-url: \"http://example.com/\": reviews leave":                            append([]string{"--ready-url=http://example.com/"}, complete...),
		"are for https, and no URL has it":                                               append([]string{"--webhook-ca=x"}, complete...),
		"--webhook-cert and --webhook-key: give both":                                    append([]string{"--validate=s=https://127.0.0.1/", "--webhook-cert=x"}, complete...),
		"--webhook-insecure checks nothing":                                              append([]string{"--validate=s=https://127.0.0.1/", "--webhook-insecure", "--webhook-ca=x"}, complete...),
		"https://webhook.svc/ is not on this machine":                                    append([]string{"--validate=s=https://webhook.svc/", "--webhook-insecure"}, complete...),
		"--webhook-ca, --webhook-cert and --webhook-key: ":                               append([]string{"--validate=s=https://127.0.0.1/", "--webhook-ca=/does/not/exist"}, complete...),
		"--listen-admin: ":                                                               append([]string{"--listen-admin=nowhere"}, complete...),
		"want host:port":                                                                 append([]string{"--dispatcher=mesh"}, complete...),
	} {
		clitest.Execute(t, NewCommand(), nil, args...).Fails(t, want)
	}
}

func TestTheHooksOfAdapt(t *testing.T) {
	c := config{
		name: "n", dispatchers: []string{"mesh:1"}, tls: tlsFiles{"a", "b", "c"}, maxOutstanding: 8, maxReview: 1, drainTimeout: time.Second,
		validate: []string{"v=http://localhost:1/a"}, mutate: []string{"m=unix:///s:/b", "v=unix:///s:/c"},
		versions: []string{"m=v1", "v1beta1"}, speculate: []string{"m"}, readyURL: "unix:///s:/ready",
	}
	p, err := c.plan()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range p.hooks {
		got = append(got, fmt.Sprintf("%s %v %s %s %v", h.name, h.mutates, h.at, h.version, h.speculate))
	}
	want := "v false http://localhost:1/a v1beta1 false, m true unix:///s:/b v1 true, v true unix:///s:/c v1beta1 false"
	if all := strings.Join(got, ", "); all != want || p.ready.String() != "unix:///s:/ready" {
		t.Errorf("hooks %s, ready at %s", all, p.ready)
	}
}

// adapted is a process of adapt, before a webhook on a unix socket, with a dispatcher.
type adapted struct {
	t          *testing.T
	dispatcher *hosttest.Listener
	socket     string
	admin      string
	ended      chan error
	stop       context.CancelFunc
}

// newAdapted starts adapt. change may set more flags.
func newAdapted(t *testing.T, change func(c *config)) *adapted {
	t.Helper()
	authority, err := certs.NewAuthority("mesh", 0)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	server, err := authority.Issue(certs.Spec{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	own, err := authority.Issue(certs.Spec{Identity: "spiffe://mesh/adapted", Client: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{own.Write(path("tls.crt"), path("tls.key")), authority.CA().WriteCert(path("ca.crt"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cert, err := server.TLS()
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(authority.Certificate())
	x := &adapted{t: t, socket: path("s"), admin: reservedAddress(t), ended: make(chan error, 1)}
	x.dispatcher = hosttest.Listen(t, hosttest.ListenOptions{Server: []grpc.ServerOption{grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
	}))}})
	c := &config{
		name: "adapted", dispatchers: []string{x.dispatcher.Addr}, tls: tlsFiles{path("tls.crt"), path("tls.key"), path("ca.crt")},
		validate: []string{"h.example.com=unix://" + x.socket + ":/validate"}, maxOutstanding: 8, maxReview: 1 << 20,
		drainTimeout: 10 * time.Second, listenAdmin: x.admin,
	}
	if change != nil {
		change(c)
	}
	x.run(c)
	return x
}

func (x *adapted) run(c *config) {
	x.t.Helper()
	plan, err := c.plan()
	if err != nil {
		x.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.t.Context()))
	x.stop = cancel
	go func() { x.ended <- run(ctx, c, plan, slog.New(slog.DiscardHandler)) }()
	x.t.Cleanup(func() {
		cancel()
		if err := <-x.ended; err != nil {
			x.t.Errorf("adapt ended with %v", err)
		}
	})
}

// reservedAddress is an address that was free.
func reservedAddress(t *testing.T) string {
	t.Helper()
	address, err := citest.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// webhook serves on the socket until the function that it returns is called.
func (x *adapted) webhook(handler http.HandlerFunc) (stop func()) {
	x.t.Helper()
	s := httptest.NewUnstartedServer(handler)
	_ = s.Listener.Close()
	var err error
	if s.Listener, err = (&net.ListenConfig{}).Listen(x.t.Context(), "unix", x.socket); err != nil {
		x.t.Fatal(err)
	}
	s.Start()
	x.t.Cleanup(s.Close)
	return s.Close
}

// refusing is a webhook that denies.
func refusing(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, uid, _ := strings.Cut(string(body), `"uid":"`)
	fmt.Fprintf(w, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":%q,"allowed":false,"status":{"message":"not here"}}}`, uid[:36])
}

func (x *adapted) get(path string) string {
	x.t.Helper()
	r, err := http.NewRequestWithContext(x.t.Context(), http.MethodGet, "http://"+x.admin+path, http.NoBody)
	if err != nil {
		x.t.Fatal(err)
	}
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		x.t.Error(err)
	}
	return string(body)
}

// eventually waits for a condition of an adapted webhook.
func (x *adapted) eventually(event string, holds func() bool) {
	x.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			x.t.Fatalf("never: %s", event)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func (x *adapted) accept() *hosttest.Session {
	x.t.Helper()
	s, err := x.dispatcher.Accept(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	return s
}

// TestAWebhookThatComesGoesAndComesBack is followed by the credit of its host.
func TestAWebhookThatComesGoesAndComesBack(t *testing.T) {
	x := newAdapted(t, nil)
	x.eventually("it waits for the webhook", func() bool { return strings.Contains(x.get("/readyz"), "the webhook cannot be called") })
	if got := x.get("/healthz"); got != "ok\n" {
		t.Errorf("healthz: %s", got)
	}
	stop := x.webhook(refusing)
	mesh := x.accept()
	x.eventually("it is ready", func() bool { return x.get("/readyz") == "ready\n" })
	request := hosttest.Create(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"}}`)
	v, err := mesh.Ask(t.Context(), "h.example.com", request)
	if err != nil || v.GetResponse().GetStatus().GetMessage() != "not here" {
		t.Errorf("verdict %v, %v", v, err)
	}
	if result, err := mesh.Probe(t.Context(), "h.example.com"); err != nil || !result.GetReady() {
		t.Errorf("probe %v, %v", result, err)
	}
	stop()
	if v, err := mesh.Ask(t.Context(), "h.example.com", request); err != nil || v.GetRefused() == nil {
		t.Errorf("without the webhook: verdict %v, %v", v, err)
	}
	x.eventually("the host takes no calls", func() bool { return mesh.Credit() == 0 })
	if result, err := mesh.Probe(t.Context(), "h.example.com"); err != nil || result.GetReady() || !strings.Contains(result.GetMessage(), "no such file") {
		t.Errorf("probe %v, %v", result, err)
	}
	x.webhook(refusing)
	x.eventually("the host takes calls", func() bool { return mesh.Credit() == 8 })
	metrics := x.get("/metrics")
	for _, want := range []string{
		`portcullis_adapt_calls_total{hook="h.example.com",outcome="denied",stage="validate"} 1`,
		`portcullis_adapt_calls_total{hook="h.example.com",outcome="unreachable",stage="validate"} 1`,
		`portcullis_adapt_call_duration_seconds_count{hook="h.example.com",stage="validate"} 2`,
		"portcullis_adapt_slots 8", "portcullis_adapt_calls_in_flight 0", "portcullis_adapt_webhook_up 1", "portcullis_adapt_sessions 1",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in\n%s", want, metrics)
		}
	}
}

// TestAnOverloadedWebhookGetsFewerCalls, and more again.
func TestAnOverloadedWebhookGetsFewerCalls(t *testing.T) {
	x := newAdapted(t, func(c *config) { c.readyURL = "unix://" + filepath.Dir(c.tls.cert) + "/s:/readyz" })
	status := make(chan int, 64)
	x.webhook(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			return
		}
		select {
		case code := <-status:
			w.WriteHeader(code)
		default:
			refusing(w, r)
		}
	})
	mesh := x.accept()
	x.eventually("the host begins with its slots", func() bool { return mesh.Credit() == 8 })
	request := hosttest.Create(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"}}`)
	for _, want := range []uint32{4, 2, 1, 1} {
		status <- http.StatusTooManyRequests
		if v, err := mesh.Ask(t.Context(), "h.example.com", request); err != nil || !strings.Contains(v.GetError().GetMessage(), "429") {
			t.Errorf("verdict %v, %v", v, err)
		}
		x.eventually(fmt.Sprintf("the host takes %d", want), func() bool { return mesh.Credit() == want })
	}
	for range 8 {
		if v, err := mesh.Ask(t.Context(), "h.example.com", request); err != nil || v.GetResponse() == nil {
			t.Errorf("verdict %v, %v", v, err)
		}
	}
	x.eventually("the host takes more", func() bool { return mesh.Credit() >= 2 })
}

// TestAnAdaptedWebhookLosesNoCallWhenItStops: SIGTERM ends the context.
func TestAnAdaptedWebhookLosesNoCallWhenItStops(t *testing.T) {
	x := newAdapted(t, nil)
	began, release := make(chan struct{}), make(chan struct{})
	x.webhook(func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-release
		refusing(w, r)
	})
	mesh := x.accept()
	call, err := mesh.Post(hosttest.Create(`{"kind":"Pod"}`), hookCall())
	if err != nil {
		t.Fatal(err)
	}
	<-began
	x.stop()
	if _, err := mesh.Drained(t.Context()); err != nil {
		t.Error(err)
	}
	close(release)
	verdicts, err := call.Wait(t.Context())
	if err != nil || verdicts[0].GetResponse().GetStatus().GetMessage() != "not here" {
		t.Errorf("verdicts %v, %v", verdicts, err)
	}
	if err := mesh.Ended(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAdaptStopsBeforeItsWebhookComes(t *testing.T) {
	x := newAdapted(t, nil)
	x.eventually("it waits", func() bool { return x.get("/readyz") != "" })
	x.stop()
}

// TestAWebhookIsKnownByItsCertificate, unless a flag says otherwise.
func TestAWebhookIsKnownByItsCertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(refusing))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	ca := clitest.Write(t, "ca.crt", string(certs.EncodeCertificate(server.Certificate())))
	other, err := certs.NewAuthority("other", 0)
	if err != nil {
		t.Fatal(err)
	}
	otherCA := clitest.Write(t, "ca.crt", string(other.CA().CertPEM))
	for name, test := range map[string]struct {
		change func(c *config)
		known  bool
	}{
		"by its authority and address":    {func(c *config) { c.webhookTLS.ca = ca }, true},
		"by its authority and name":       {func(c *config) { c.webhookTLS.ca, c.webhookServerName = ca, "example.com" }, true},
		"not by another name":             {func(c *config) { c.webhookTLS.ca, c.webhookServerName = ca, "other.example" }, false},
		"not by another authority":        {func(c *config) { c.webhookTLS.ca = otherCA }, false},
		"not by the system's authorities": {func(c *config) {}, false},
		"not at all, if a flag says so":   {func(c *config) { c.insecure = true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &config{
				name: "n", dispatchers: []string{"mesh:1"}, tls: tlsFiles{"a", "b", "c"}, maxOutstanding: 8, maxReview: 1, drainTimeout: 1,
				validate: []string{"h=" + server.URL + "/validate"},
			}
			test.change(c)
			plan, err := c.plan()
			if err != nil {
				t.Fatal(err)
			}
			a := newAdapter(c, plan, slog.New(slog.DiscardHandler))
			if err := a.openWebhookTLS(); err != nil {
				t.Fatal(err)
			}
			if err := a.connectTo(plan.hooks[0].at); err != nil {
				t.Fatal(err)
			}
			defer a.hangUp()
			if err := a.connect(t.Context()); (err == nil) != test.known {
				t.Errorf("connected: %v", err)
			}
		})
	}
}

// hookCall asks the hook for a minute.
func hookCall() *hostv1.HookCall {
	return &hostv1.HookCall{Name: "h.example.com", Stage: admissionv1.Stage_STAGE_VALIDATE, RemainingMs: 60_000}
}
