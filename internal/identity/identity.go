// Package identity names the peer of a TLS channel.
//
// A [Peer] is a name taken from a certificate, together with the authorities that vouch for it. Everything that grants
// something (Cluster, HookRoute and Role documents, the operators of a dispatcher) is a [Grant]: names, and the authorities
// that may vouch for them; never addresses, or anything that the peer announces by itself. The package holds no state and does
// no I/O; its functions may be called from any goroutine.
package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
)

// uriMark distinguishes a URI from a plain name. A common name that holds it is no identity: CAs check URI names more
// strictly than common names, and one must not be able to pass for the other.
const uriMark = "://"

// Why a channel has no identity.
var (
	// ErrNone: the peer has no certificate that was verified, or one without an identity.
	ErrNone = errors.New("there is no client certificate with an identity")
	// ErrExpired: the certificate of the peer, or of an authority above it, has expired since the channel was opened.
	ErrExpired = errors.New("the client certificate of the connection has expired: connect again with a new one")
	// ErrUntrusted: an authority that vouched for the peer is not trusted any more.
	ErrUntrusted = errors.New("an authority of the connection's client certificate is not trusted any more: " +
		"connect again with a certificate of an authority that is")
)

// Channel is an open connection with a peer. It may be used concurrently.
type Channel interface {
	// Identity returns the peer as it is now, or why there is none: ErrNone, ErrExpired or ErrUntrusted.
	Identity() (Peer, error)
}

// Peer is the other end of a channel. It is immutable and comparable: two peers of one name that different
// authorities vouch for are different peers. The zero Peer has no identity.
type Peer struct {
	name string
	// authorities are sorted and separated by spaces, each once.
	authorities string
}

var _ Channel = Peer{}

// Named returns the peer of a name that these authorities vouch for.
func Named(name string, authorities ...string) Peer {
	authorities = slices.Clone(authorities)
	slices.Sort(authorities)
	return Peer{name, strings.Join(slices.Compact(authorities), " ")}
}

// Name is the identity as documents write it, or "".
func (p Peer) Name() string { return p.name }

// Authorities vouch for the name. They are sorted, as documents write them: see [Authorities].
func (p Peer) Authorities() []string { return strings.Fields(p.authorities) }

// Identity implements [Channel]: it stays as it is.
func (p Peer) Identity() (Peer, error) {
	if p.name == "" {
		return Peer{}, ErrNone
	}
	return p, nil
}

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

// FromTLS returns the peer of an established connection, as its handshake verified it. It is false without a certificate,
// without a verified chain (a certificate that was merely presented proves nothing), and when the certificate carries no
// identity.
func FromTLS(state *tls.ConnectionState) (Peer, bool) {
	if state == nil {
		return Peer{}, false
	}
	return FromChains(state.VerifiedChains)
}

// FromChains returns the peer of a certificate by its verified chains, each from the certificate to a trusted one. Every
// chain may vouch, so that a CA that is cross-signed does not depend on the order of its chains. A chain in which a CA
// certificate of another SPIFFE trust domain stands above a SPIFFE identity vouches for nothing: an SVID is verified by the
// bundle of its own trust domain, whose signing certificates carry that (X509-SVID, section 3.2).
func FromChains(chains [][]*x509.Certificate) (Peer, bool) {
	name, authorities := "", []string(nil)
	for _, chain := range chains {
		if len(chain) > 0 && ownTrustDomain(chain) {
			name, authorities = Of(chain[0]), append(authorities, Authorities(chain)...)
		}
	}
	return Named(name, authorities...), name != ""
}
