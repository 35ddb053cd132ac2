package conformance_test

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/credentials"

	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/sdk/conformance"
)

const serverName = "dispatchers.conformance.example"

// trust is the certificates of one case.
type trust struct {
	*stage

	authority *certs.Authority
}

func (s *stage) trust() *trust {
	s.Helper()
	return &trust{stage: s, authority: must[*certs.Authority](s)(certs.NewAuthority("conformance", 0))}
}

// files writes the files of a host with an identity, in the place of those that there are.
func (t *trust) files(name string) *conformance.TLSFiles {
	t.Helper()
	return t.filesIn(t.dir, name)
}

func (t *trust) filesIn(dir, name string) *conformance.TLSFiles {
	t.Helper()
	f := &conformance.TLSFiles{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")}
	pair := must[certs.Pair](t.stage)(t.authority.Issue(certs.Spec{Identity: name, Client: true}))
	t.check(pair.Write(f.Cert, f.Key))
	t.check(t.authority.CA().WriteCert(f.CA))
	return f
}

// server is the configuration of a dispatcher whose certificate carries a name.
func (t *trust) server(name string, change ...func(c *tls.Config)) *tls.Config {
	t.Helper()
	pair := must[certs.Pair](t.stage)(t.authority.Issue(certs.Spec{DNSNames: []string{name}, Server: true}))
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{must[tls.Certificate](t.stage)(pair.TLS())},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool(), NextProtos: []string{"h2"},
	}
	c.ClientCAs.AppendCertsFromPEM(t.authority.CA().CertPEM)
	for _, f := range change {
		f(c)
	}
	return c
}

// shifting is a server's side of TLS that may change from one handshake to the next.
type shifting struct {
	handshakes atomic.Int64 // begun

	mu  sync.Mutex
	now *tls.Config
}

func (s *shifting) set(c *tls.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = c
}

func (s *shifting) creds() credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			s.handshakes.Add(1)
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.now, nil
		},
	})
}
