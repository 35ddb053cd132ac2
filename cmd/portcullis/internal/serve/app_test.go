package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/webhooks"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/telemetry"
)

// long is a time that no test waits for.
const long = time.Hour

// sampleApp is a dispatcher with the samples of dev, and how it is configured.
func sampleApp(t *testing.T, change func(d *dev, c *serveConfig)) (*app, *dev) {
	t.Helper()
	return observedApp(t, slog.New(slog.DiscardHandler), noop.NewTracerProvider(), change)
}

// observedApp is sampleApp with a log and spans.
func observedApp(t *testing.T, log *slog.Logger, spans trace.TracerProvider, change func(d *dev, c *serveConfig)) (*app, *dev) {
	t.Helper()
	d := &dev{dir: t.TempDir()}
	if err := d.prepare(); err != nil {
		t.Fatal(err)
	}
	c := serveConfig{
		id:     "test",
		stores: storeConfig{paths: []string{d.path("config")}}, listen: "127.0.0.1:0", listenHosts: "127.0.0.1:0", listenAdmin: "127.0.0.1:0",
		tls:          listen.TLSFiles{Cert: d.path("certs/server.crt"), Key: d.path("certs/server.key"), CA: d.path("certs/ca.crt")},
		drainTimeout: long, readyTimeout: long, webhooks: webhooks.Flags{Networks: loopback()},
	}
	change(d, &c)
	tracing := telemetry.New(t.Context(), telemetry.Options{Logger: log})
	tracing.TracerProvider = spans
	stores, err := c.stores.open(t.Context(), c.id, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stores.close)
	a, err := newApp(c, stores, log, tracing)
	if err != nil {
		t.Fatal(err)
	}
	return a, d
}

// within waits for something that takes no time, or for ever.
func within[T any](t *testing.T, event string, c <-chan T) T {
	t.Helper()
	select {
	case x := <-c:
		return x
	case <-time.After(2 * time.Minute):
		t.Fatalf("waited in vain for %s", event)
	}
	return *new(T)
}

func TestAProcessThatIsStoppedAtOnceStopsWithoutAnError(t *testing.T) {
	for range 20 {
		a, _ := sampleApp(t, func(*dev, *serveConfig) {})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := a.run(ctx, func(listen.ReadyInfo) error { return nil }); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
}

func TestNothingIsJudgedByAFirstConfigurationThatIsBad(t *testing.T) {
	a, _ := sampleApp(t, func(d *dev, c *serveConfig) {
		c.stopDelay = long // as long as a bridge serves on once it has begun to
		if err := os.WriteFile(d.path("config/bad.yaml"), []byte("kind: Nonsense"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	ended := make(chan error, 1)
	go func() {
		ended <- a.run(t.Context(), func(listen.ReadyInfo) error {
			t.Error("it is said to serve")
			return nil
		})
	}()
	if err := within(t, "the end of the process", ended); err == nil {
		t.Error("no error")
	}
}

func TestAConflictOfRoutesKeepsNoProcessFromStarting(t *testing.T) {
	a, _ := sampleApp(t, func(d *dev, _ *serveConfig) {
		const routes = "apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: a}\nspec: {configuration: c}\n---\n" +
			"apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: b}\nspec: {configuration: c, clusters: [dev]}\n"
		if err := os.WriteFile(d.path("config/conflict.yaml"), []byte(routes), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	serving, ended := make(chan listen.ReadyInfo, 1), make(chan error, 1)
	go func() { ended <- a.run(ctx, func(info listen.ReadyInfo) error { serving <- info; return nil }) }()
	within(t, "the listeners", serving)
	if err := a.store.Configuration().Problems.Err(); err == nil || !strings.Contains(err.Error(), "names the same hooks") {
		t.Errorf("problems %v", err)
	}
	cancel()
	if err := within(t, "the end of the process", ended); err != nil {
		t.Error(err)
	}
}

func TestWhenAPartFailsTheOthersStopInOrder(t *testing.T) {
	a, d := sampleApp(t, func(*dev, *serveConfig) {})
	l, err := a.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	broken := brokenListener{l.admin, make(chan struct{})}
	l.admin = broken
	serving, ended := make(chan listen.ReadyInfo, 1), make(chan error, 1)
	go func() {
		ended <- a.serve(t.Context(), l, func(info listen.ReadyInfo) error {
			serving <- info
			return nil
		})
	}()
	h, err := hostsdk.New(hostsdk.Options{
		Name: "sample-host", Dispatchers: []string{within(t, "the listeners", serving).Hosts},
		TLS:    hostsdk.TLSFiles(d.path("certs/host.crt"), d.path("certs/host.key"), d.path("certs/ca.crt")),
		Logger: slog.New(slog.DiscardHandler),
	}, sampleHooks()...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- h.Run(ctx) }()
	within(t, "the host", h.Ready())
	close(broken.failing)
	if err := within(t, "the end of the process", ended); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
	metrics := httptest.NewRecorder()
	a.admin.Handler.ServeHTTP(metrics, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if !strings.Contains(metrics.Body.String(), `portcullis_host_sessions_ended_total{cause="drained"} 1`) {
		t.Error("the host was not let go")
	}
	cancel()
	if err := within(t, "the end of the host", left); err != nil {
		t.Error(err)
	}
}

var errBroken = errors.New("broken")

// brokenListener fails when it is told to.
type brokenListener struct {
	net.Listener

	failing chan struct{}
}

func (l brokenListener) Accept() (net.Conn, error) {
	<-l.failing
	return nil, errBroken
}

func TestHealthTurnsBadBeforeTheListenersClose(t *testing.T) {
	t.Parallel()
	a, _ := sampleApp(t, func(_ *dev, c *serveConfig) { c.stopDelay = 3 * time.Second })
	ctx, cancel := context.WithCancel(t.Context())
	serving, ended := make(chan listen.ReadyInfo, 1), make(chan error, 1)
	go func() {
		ended <- a.run(ctx, func(info listen.ReadyInfo) error {
			serving <- info
			return nil
		})
	}()
	address := strings.TrimPrefix(within(t, "the listeners", serving).Bridge, "https://")
	cancel()
	for {
		h, err := a.health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if h.GetStatus() == grpc_health_v1.HealthCheckResponse_NOT_SERVING {
			break
		}
		<-time.After(time.Millisecond)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Errorf("gRPC callers are told after the listeners have closed: %v", err)
	} else {
		_ = conn.Close()
	}
	if err := within(t, "the end of the process", ended); err != nil {
		t.Error(err)
	}
}
