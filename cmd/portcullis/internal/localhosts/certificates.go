package localhosts

import (
	"crypto/tls"
	"crypto/x509"
	"net"

	"github.com/portcullis-mesh/portcullis/internal/certs"
)

// serverTLS is the TLS of the listener. Each host has a certificate of the authority.
func serverTLS(authority *certs.Authority) (*tls.Config, error) {
	pair, err := authority.Issue(certs.Spec{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the certificate
	}
	certificate, err := pair.TLS()
	if err != nil {
		return nil, err //nolint:wrapcheck // a pair that was just made
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(authority.Certificate())
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted,
	}, nil
}

// certify writes the certificate of a host and its key.
func certify(authority *certs.Authority, name, files string) error {
	pair, err := authority.Issue(certs.Spec{Identity: name, Client: true})
	if err != nil {
		return err //nolint:wrapcheck // it names the identity
	}
	return pair.Write(files+".crt", files+".key") //nolint:wrapcheck // it names the file
}
