// Package pki makes the certificates of one run: every connection that is measured is secured by TLS 1.3 in the same way.
package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/certs"
)

const (
	// Identity is who the holder of the client certificate is.
	Identity = "bench"
	// lifetime is longer than any run.
	lifetime = 24 * time.Hour
)

// PKI is an authority with one server and one client. It does not change, and may be read from any goroutine.
type PKI struct {
	authority      []byte
	pool           *x509.CertPool
	server, client tls.Certificate
	files          Client
	serverFiles    certs.Pair
}

// Client has the credentials of a client in another process, in PEM. The key is a secret of the run.
type Client struct {
	Authority []byte `json:"authority"`
	Cert      []byte `json:"cert"`
	Key       []byte `json:"key"`
}

// New makes new keys.
func New() (*PKI, error) {
	ca, err := certs.NewAuthority("bench", lifetime)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	p := &PKI{authority: ca.CA().CertPEM, pool: x509.NewCertPool()}
	p.pool.AppendCertsFromPEM(p.authority)
	loopback := []net.IP{net.IPv4(127, 0, 0, 1)}
	if p.serverFiles, err = ca.Issue(certs.Spec{IPs: loopback, Server: true}); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	if p.server, err = p.serverFiles.TLS(); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	pair, err := ca.Issue(certs.Spec{Identity: Identity, Client: true})
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	p.files = Client{Authority: p.authority, Cert: pair.CertPEM, Key: pair.KeyPEM}
	p.client, err = pair.TLS()
	return p, err
}

// Authority is the certificate that servers are verified by, in PEM.
func (p *PKI) Authority() []byte { return p.authority }

// Files are the credentials of a client in another process.
func (p *PKI) Files() Client { return p.files }

// Write writes everything into a directory, for programs that read PEM files: ca.crt, tls.crt and tls.key of the client, server.crt and
// server.key.
func (p *PKI) Write(directory string) error {
	for name, pem := range map[string][]byte{
		"ca.crt": p.authority, "tls.crt": p.files.Cert, "tls.key": p.files.Key,
		"server.crt": p.serverFiles.CertPEM, "server.key": p.serverFiles.KeyPEM,
	} {
		if err := os.WriteFile(filepath.Join(directory, name), pem, 0o600); err != nil {
			return fmt.Errorf("pki: %w", err)
		}
	}
	return nil
}

// TLS is a new configuration for a client with these files.
func (c Client) TLS() (*tls.Config, error) {
	pair, err := certs.Pair{CertPEM: c.Cert, KeyPEM: c.Key}.TLS()
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(c.Authority) {
		return nil, errors.New("pki: no certificate of an authority")
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: pool}, nil
}

// Server is a new configuration for a server on 127.0.0.1 that knows its clients by their certificates.
func (p *PKI) Server(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{p.server}, NextProtos: protocols,
		ClientCAs: p.pool, ClientAuth: tls.VerifyClientCertIfGiven,
	}
}

// Client is a new configuration for a client with the certificate of Identity.
func (p *PKI) Client() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{p.client}, RootCAs: p.pool}
}
