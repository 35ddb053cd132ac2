package remote

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

func webhookAt(t *testing.T, address string, config *tls.Config) *Webhook {
	t.Helper()
	at, err := ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(Options{Address: at, TLS: config, MaxConnections: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.CloseIdleConnections)
	return w
}

// ready answers checks: /readyz well, /broken not, and any other path as kubelet does not follow it.
func ready(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/readyz":
			w.WriteHeader(http.StatusFound)
		case "/broken":
			http.Error(w, "caches are empty", http.StatusServiceUnavailable)
		}
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(s.Close)
	return s
}

func TestChecksFindAWebhook(t *testing.T) {
	plain, secure, socket := ready(t), ready(t), ready(t)
	plain.Start()
	secure.StartTLS()
	file := filepath.Join(t.TempDir(), "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", file)
	if err != nil {
		t.Fatal(err)
	}
	_ = socket.Listener.Close()
	socket.Listener = listener
	socket.Start()
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	trusting := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}

	for name, w := range map[string]*Webhook{
		"tcp": webhookAt(t, plain.URL, nil), "https": webhookAt(t, secure.URL, trusting), "unix": webhookAt(t, "unix://"+file, nil),
	} {
		if err := w.Connect(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := w.Get(t.Context(), "/readyz"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := w.Get(t.Context(), "/broken"); err == nil || !strings.Contains(err.Error(), "caches are empty") {
			t.Errorf("%s: %v, want what the webhook answered", name, err)
		}
	}
	for want, w := range map[string]*Webhook{
		"unknown authority": webhookAt(t, secure.URL, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}),
		"not other.example": webhookAt(t, secure.URL, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: "other.example"}),
		"no such file":      webhookAt(t, "unix://"+file+".not", nil),
	} {
		if err := w.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", w.address, err, want)
		}
		if err := w.Get(t.Context(), "/readyz"); err == nil {
			t.Errorf("%s is ready", w.address)
		}
	}
}

func TestAWebhookNeedsAnAddressAndConnections(t *testing.T) {
	at, _ := ParseAddress("http://127.0.0.1:1")
	for want, o := range map[string]Options{
		"MaxConnections": {Address: at}, "Address is empty": {MaxConnections: 1},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}
