package certs

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// Explain puts the error of a connection of ClientTLS in words for an operator: first a fault of our own certificate, then who refused whom.
// A server of TLS 1.3 refuses a client after the client's handshake: errors before the first answer belong here too. Of other errors it
// returns nil.
func (r *Reloader) Explain(err error) error {
	err = r.explain(err)
	if own := r.ownFault(); own != nil && err != nil {
		return fmt.Errorf("%w; %w", own, err)
	}
	return err
}

func (r *Reloader) explain(err error) error {
	var (
		op        *net.OpError
		header    tls.RecordHeaderError
		untrusted *distrustError
	)
	switch {
	case errors.As(err, &untrusted):
		return untrusted
	case errors.As(err, &header) && strings.HasPrefix(string(header.RecordHeader[:]), "HTTP/"):
		return fmt.Errorf("the server speaks plain HTTP at this port, and no TLS: %w", err)
	case errors.As(err, &header):
		return fmt.Errorf("the server speaks no TLS at this port: %w", err)
	case errors.As(err, &op) && op.Op == "remote error":
		return r.refused(op.Err.Error(), err)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("the server closed the connection in the handshake: it speaks no TLS at this port, or refused %s: %w", r.own(), err)
	}
	return nil
}

// refused is about an alert of the server. crypto/tls exports no type of it, only its text.
func (r *Reloader) refused(alert string, err error) error {
	switch {
	case strings.HasSuffix(alert, "certificate required"):
		return fmt.Errorf("the server wants a certificate of this client: %w", err)
	case strings.HasSuffix(alert, "unknown certificate authority"):
		return fmt.Errorf("the server refused %s, since it does not trust the issuer: %w", r.own(), err)
	case strings.Contains(alert, "certificate"):
		return fmt.Errorf("the server refused %s: %w", r.own(), err)
	}
	return fmt.Errorf("the server refused the handshake: %w", err)
}

// own names our certificate.
func (r *Reloader) own() string {
	cert := r.current.Load().cert
	if cert == nil {
		return "this client, which has no certificate"
	}
	return fmt.Sprintf("this client's certificate %s (identity %q, issued by %q)", r.options.CertFile, identity.Of(cert.Leaf), nameOf(cert.Leaf.Issuer.CommonName))
}

func nameOf(commonName string) string { return cmp.Or(commonName, "an issuer without a name") }

// ownFault is a reason, to be seen from here, for which no server accepts our certificate; nil without one.
func (r *Reloader) ownFault() error {
	cert := r.current.Load().cert
	if cert == nil {
		return nil
	}
	const remedy = "`portcullis certs show` prints it, `portcullis certs issue client` makes another one"
	leaf, now := cert.Leaf, r.options.Now()
	forClients := func(u x509.ExtKeyUsage) bool { return u == x509.ExtKeyUsageClientAuth || u == x509.ExtKeyUsageAny }
	switch {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("this client's certificate %s ended at %s: %s", r.options.CertFile, moment(leaf.NotAfter), remedy)
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("this client's certificate %s begins at %s, and the clock of this machine is at %s",
			r.options.CertFile, moment(leaf.NotBefore), moment(now))
	case len(leaf.ExtKeyUsage) > 0 && !slices.ContainsFunc(leaf.ExtKeyUsage, forClients):
		return fmt.Errorf("this client's certificate %s is for servers, not for clients: %s", r.options.CertFile, remedy)
	}
	return nil
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// distrustError is why a client does not trust a server.
type distrustError struct {
	text string
	err  error
}

// Error is part of error.
func (e *distrustError) Error() string { return "this client does not trust the server: " + e.text }

// Unwrap returns the error of package x509.
func (e *distrustError) Unwrap() error { return e.err }

// distrust puts the reason why a certificate of a server is not accepted into words.
func (r *Reloader) distrust(cert *x509.Certificate, serverName string, err error) error {
	var (
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
		text    string
	)
	issuer := nameOf(cert.Issuer.CommonName)
	switch {
	case errors.As(err, &unknown):
		text = fmt.Sprintf("the server's certificate was issued by %q, and %s has %s", issuer, r.options.CAFile, r.trusts(issuer))
	case errors.As(err, &name):
		text = fmt.Sprintf("the server's certificate is valid for %s, not %s: use such a name, or issue it for this one",
			cmp.Or(namesOf(cert), "no name"), serverName)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && r.options.Now().After(invalid.Cert.NotAfter):
		text = fmt.Sprintf("%s ended at %s: it has to be renewed there", theirs(cert, invalid.Cert), moment(invalid.Cert.NotAfter))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		text = fmt.Sprintf("%s begins at %s, and the clock of this machine is at %s",
			theirs(cert, invalid.Cert), moment(invalid.Cert.NotBefore), moment(r.options.Now()))
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		text = "the server's certificate is for clients, not for servers"
	default:
		text = err.Error()
	}
	return &distrustError{text, err}
}

// theirs names a certificate of the chain of a server.
func theirs(leaf, at *x509.Certificate) string {
	if at.Equal(leaf) {
		return fmt.Sprintf("the server's certificate, issued by %q,", nameOf(leaf.Issuer.CommonName))
	}
	return fmt.Sprintf("the authority %q of the server's certificate", at.Subject.CommonName)
}

func namesOf(cert *x509.Certificate) string {
	names := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	return strings.Join(names, ", ")
}

// trusts names the authorities that are trusted, beside an issuer that is none of them.
func (r *Reloader) trusts(issuer string) string {
	authorities, err := ParseBundle(r.current.Load().bundle)
	if err != nil {
		return "no authority"
	}
	var names []string
	for _, authority := range authorities {
		name := nameOf(authority.Subject.CommonName)
		if name == issuer {
			return "another authority of this name: compare the fingerprints by `portcullis certs show`"
		}
		names = append(names, fmt.Sprintf("%q", name))
	}
	return strings.Join(names, ", ") + " alone"
}
