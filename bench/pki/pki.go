// Package pki makes the certificates of one run: every connection that is measured is secured by TLS 1.3 in the same way.
package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"time"

	"github.com/portcullis-mesh/portcullis/certs"
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
	if p.server, err = issue(ca, certs.Spec{IPs: loopback, Server: true}); err != nil {
		return nil, err
	}
	p.client, err = issue(ca, certs.Spec{Identity: Identity, Client: true})
	return p, err
}

func issue(ca *certs.Authority, spec certs.Spec) (tls.Certificate, error) {
	pair, err := ca.Issue(spec)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("pki: %w", err)
	}
	return pair.TLS()
}

// Authority is the certificate that servers are verified by, in PEM.
func (p *PKI) Authority() []byte { return p.authority }

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
