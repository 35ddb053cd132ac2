package check

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

const (
	certificates = "certificates"
	connection   = "connection"
	// soonPart is the part of the lifetime of a certificate before its end in which its expiry is a warning: renewers begin at a third.
	soonPart = 4
)

// expiry adds the result for the end of a certificate.
func (r *report) expiry(category, description string, cert *x509.Certificate, hint string) {
	left := cert.NotAfter.Sub(r.now)
	until := fmt.Sprintf("it ends %s", cert.NotAfter.UTC().Format(time.RFC3339))
	switch {
	case left <= 0:
		r.fail(category, description, errors.New(until+", which is past"), hint)
	case r.now.Before(cert.NotBefore):
		r.fail(category, description, fmt.Errorf("it begins %s, which is to come", cert.NotBefore.UTC().Format(time.RFC3339)), "set the clocks of the machines")
	case left < cert.NotAfter.Sub(cert.NotBefore)/soonPart:
		r.warn(category, description, fmt.Sprintf("%s, in %s", until, left.Round(time.Minute)), hint)
	default:
		r.ok(category, description, until)
	}
}

// ownCertificates checks the files of the caller.
func (r *report) ownCertificates(f connect.Files) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		r.fail(certificates, "the client certificate and its key fit", err, "--cert and --key name the two files of `portcullis certs issue client`")
	} else {
		r.ok(certificates, "the client certificate and its key fit", "identity "+cmp.Or(identity.Of(pair.Leaf), "none"))
		r.expiry(certificates, "the client certificate is valid", pair.Leaf, "issue another one: `portcullis certs issue client`, or let your issuer renew it")
	}
	authorities, err := certs.ReadCertificates(f.CA)
	if err != nil {
		r.fail(certificates, "the authorities of the mesh are known", err, "--ca names a PEM file of CA certificates")
	}
	for _, cert := range authorities {
		r.expiry(certificates, fmt.Sprintf("the authority %q is valid", cert.Subject.CommonName), cert,
			"trust a new authority beside it, issue certificates by that, then remove it: docs/operations.md, identities and certificates")
	}
}

// connection checks that the listeners of the mesh answer with certificates that the authorities vouch for. It reports whether the
// listener for operators does.
func (r *report) connection(ctx context.Context, f connect.Files, bridge string) bool {
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	data, err := os.ReadFile(f.CA)
	if pair, keyErr := tls.LoadX509KeyPair(f.Cert, f.Key); keyErr == nil {
		config.Certificates = []tls.Certificate{pair}
	}
	if err != nil || !config.RootCAs.AppendCertsFromPEM(data) {
		return false // reported with the files
	}
	operators := config.Clone()
	operators.NextProtos, operators.ServerName = []string{"h2"}, f.ServerName
	reached := r.listener(ctx, "the mesh answers at "+f.Server, f.Server, operators)
	if bridge = cmp.Or(bridge, f.Bridge); bridge == "" {
		return reached
	}
	u, err := url.Parse(bridge)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		r.fail(connection, "API servers can reach the mesh", fmt.Errorf("--url %q is no HTTPS URL", bridge), "name it as `cluster register --url` does")
		return reached
	}
	config.ServerName = u.Hostname()
	r.listener(ctx, "the mesh answers API servers at "+u.Host, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")), config)
	return reached
}

// listener checks one listener: the handshake, and the end of the certificate that it shows.
func (r *report) listener(ctx context.Context, description, address string, config *tls.Config) bool {
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if wrong := (*tls.CertificateVerificationError)(nil); errors.As(err, &wrong) {
		r.fail(connection, description, err, "--ca names the authority of this certificate; the certificate names the host of the address")
		for _, cert := range wrong.UnverifiedCertificates[:min(1, len(wrong.UnverifiedCertificates))] {
			r.expiry(connection, "its certificate is valid", cert, "renew the certificate of serve (--tls-cert): it is read again when the file changes")
		}
		return false
	}
	if err != nil {
		r.fail(connection, description, err, "is a dispatcher running there, and does a firewall let this machine reach it?")
		return false
	}
	defer conn.Close()
	r.ok(connection, description, "")
	if secured, isTLS := conn.(*tls.Conn); isTLS {
		r.expiry(connection, "its certificate is valid", secured.ConnectionState().PeerCertificates[0],
			"renew the certificate of serve (--tls-cert): it is read again when the file changes")
	}
	return true
}
