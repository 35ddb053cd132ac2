package pki_test

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/test/e2e/pki"
)

func newAuthority(t *testing.T) *pki.Authority {
	t.Helper()
	authority, err := pki.NewAuthority(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

// must is for calls that fail only when the machine has no randomness.
func must(t *testing.T) func(pki.Pair, error) tls.Certificate {
	return func(pair pki.Pair, err error) tls.Certificate {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := pair.TLS()
		if err != nil {
			t.Fatal(err)
		}
		return certificate
	}
}

// serve answers with the caller's name and groups.
func serve(t *testing.T, authority *pki.Authority) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		subject := r.TLS.PeerCertificates[0].Subject
		groups := slices.Sorted(slices.Values(subject.Organization)) // a set in X.509: the order is lost
		w.Header().Set("Caller", subject.CommonName+" of "+strings.Join(groups, ","))
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // the test has handshakes refused
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{must(t)(authority.Server("127.0.0.1", "localhost"))},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    authority.Pool(),
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

func get(t *testing.T, url string, config *tls.Config) (*http.Response, error) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	response, err := (&http.Client{Transport: transport}).Get(url)
	if err == nil {
		t.Cleanup(func() { response.Body.Close() })
	}
	return response, err
}

func TestServerAndClientOfOneAuthorityKnowEachOther(t *testing.T) {
	authority := newAuthority(t)
	url := serve(t, authority)

	response, err := get(t, url, &tls.Config{
		RootCAs:      authority.Pool(),
		Certificates: []tls.Certificate{must(t)(authority.Client("alice", "developers", "admins"))},
	})
	if err != nil {
		t.Fatal(err)
	}
	if caller := response.Header.Get("Caller"); caller != "alice of admins,developers" {
		t.Errorf("caller = %q, want alice with her groups", caller)
	}
}

func TestCertificatesOfAnotherAuthorityAreRefused(t *testing.T) {
	authority, other := newAuthority(t), newAuthority(t)
	url := serve(t, authority)
	alice := must(t)(authority.Client("alice"))
	mallory := must(t)(other.Client("alice"))

	if _, err := get(t, url, &tls.Config{RootCAs: other.Pool(), Certificates: []tls.Certificate{alice}}); err == nil {
		t.Error("a client that trusts another authority accepts the server")
	}
	if _, err := get(t, url, &tls.Config{RootCAs: authority.Pool(), Certificates: []tls.Certificate{mallory}}); err == nil {
		t.Error("the server accepts a client of another authority")
	}
}

func TestServerNeedsAHost(t *testing.T) {
	if _, err := newAuthority(t).Server(); err == nil {
		t.Error("no error for a serving certificate without a host")
	}
}

func TestWrittenKeysAreForTheirOwnerAlone(t *testing.T) {
	pair, err := newAuthority(t).Client("alice")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := pair.Write(t.TempDir(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		t.Errorf("the written pair: %v", err)
	}
	info, err := os.Stat(key)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("mode of the key = %o, want 600", mode)
	}
}
