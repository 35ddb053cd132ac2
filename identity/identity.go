// Package identity says who is at the other end of a TLS channel.
//
// An identity is one string taken from a certificate that a configured CA vouches for. Everything that grants
// something (Cluster documents, HookRoutes) names identities, never addresses or anything that the peer announces by
// itself. The package holds no state and does no I/O; its functions may be called from any goroutine.
package identity

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
)

// uriMark is what tells a URI from a plain name. A common name that holds it is no identity: CAs check URI names more
// strictly than common names, and one must not be able to pass for the other.
const uriMark = "://"

// Of returns the identity that a certificate carries: its first URI name (a SPIFFE certificate has exactly one), else
// the common name of its subject, else "". It does not verify anything: FromTLS does.
func Of(cert *x509.Certificate) string {
	if cert == nil {
		return ""
	}
	if len(cert.URIs) > 0 {
		return cert.URIs[0].String()
	}
	if strings.Contains(cert.Subject.CommonName, uriMark) {
		return ""
	}
	return cert.Subject.CommonName
}

// FromTLS returns the identity of the peer of an established connection. It is false without a certificate, without a
// verified chain (a certificate that was merely presented proves nothing), and when the certificate carries no
// identity.
func FromTLS(state *tls.ConnectionState) (string, bool) {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return "", false
	}
	id := Of(state.VerifiedChains[0][0])
	return id, id != ""
}
