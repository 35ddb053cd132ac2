package certs

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
)

// ServerTLS returns a configuration for a server that takes the newest files at every handshake: its certificate and
// the authorities of its clients. ALPN picks the first protocol that the client offers too. Without protocols there is no
// ALPN, and clients of HTTP speak HTTP/1.1.
//
// Between our own parts minVersion is tls.VersionTLS13 with tls.RequireAndVerifyClientCert. API servers are given
// tls.VersionTLS12, and tls.VerifyClientCertIfGiven where a caller without certificate shall read an answer that says
// so. Sessions are not resumed: connections live long, and a resumed one would outlive the authority of its client.
func (r *Reloader) ServerTLS(minVersion uint16, auth tls.ClientAuthType, protocols ...string) *tls.Config {
	return &tls.Config{ //nolint:gosec // the caller says the lowest version; API servers need TLS 1.2
		MinVersion:             minVersion,
		ClientAuth:             auth,
		NextProtos:             protocols,
		SessionTicketsDisabled: true,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return r.handshake(minVersion, auth, protocols)
		},
	}
}

// handshake is the configuration of one connection. A callback for the certificate alone would not do: the authorities
// of the clients have no callback in crypto/tls.
func (r *Reloader) handshake(minVersion uint16, auth tls.ClientAuthType, protocols []string) (*tls.Config, error) {
	now := r.fresh()
	if now.cert == nil {
		return nil, errors.New("this server has no certificate; name its certificate and key file")
	}
	if auth >= tls.VerifyClientCertIfGiven && now.authorities == nil {
		// Without this crypto/tls would trust every authority of the system.
		return nil, errors.New("this server trusts no authority of clients; name its CA file")
	}
	return &tls.Config{ //nolint:gosec // as in ServerTLS
		MinVersion:             minVersion,
		ClientAuth:             auth,
		NextProtos:             protocols,
		SessionTicketsDisabled: true,
		Certificates:           []tls.Certificate{*now.cert},
		ClientCAs:              now.authorities,
		Time:                   r.options.Now,
	}, nil
}

// ClientTLS returns a configuration for a client of our own parts (TLS 1.3) that takes the newest files at every
// handshake: its certificate, if it has one, and the authorities of servers. The server's certificate must carry
// serverName, a DNS name or an IP address; empty is the DNS name that is dialled. An address has to be named here: TLS
// does not send it, so it cannot be checked later.
func (r *Reloader) ClientTLS(serverName string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: serverName,
		// The check is VerifyConnection, made for every connection: RootCAs has no callback in crypto/tls and would stay
		// as it was when the program started.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies
		VerifyConnection: func(state tls.ConnectionState) error {
			return r.verifyServer(state, serverName)
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if cert := r.fresh().cert; cert != nil {
				return cert, nil
			}
			return &tls.Certificate{}, nil // "none", in the words of crypto/tls
		},
	}
}

// verifyServer verifies the server as crypto/tls does with RootCAs, but with the newest authorities.
func (r *Reloader) verifyServer(state tls.ConnectionState, serverName string) error {
	serverName = cmp.Or(serverName, state.ServerName)
	if serverName == "" {
		return errors.New("the name of the server is unknown; give ClientTLS the name or address that is dialled")
	}
	authorities := r.fresh().authorities
	if authorities == nil {
		return errors.New("this client trusts no authority; name its CA file")
	}
	intermediates := x509.NewCertPool()
	for _, cert := range state.PeerCertificates[1:] {
		intermediates.AddCert(cert)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: authorities, Intermediates: intermediates, DNSName: serverName, CurrentTime: r.options.Now(),
	})
	if err != nil {
		return r.distrust(state.PeerCertificates[0], serverName, err)
	}
	return nil
}
