package certs

import (
	"crypto/tls"
	"crypto/x509"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// Channel is the identity of the peer of one connection, for as long as its certificate is valid and trusted. It is computed once for
// a connection; Identity costs a look at the clock. It may be used concurrently.
type Channel struct {
	files    *Reloader
	peer     identity.Peer
	roots    []string  // fingerprints of the trusted certificates at the ends of the chains
	notAfter time.Time // when the first certificate of the chains expires
	checked  atomic.Pointer[material]
}

var _ identity.Channel = (*Channel)(nil)

// Channel returns the identity that a connection to a listener of ServerTLS has proved in its handshake.
func (r *Reloader) Channel(state *tls.ConnectionState) *Channel {
	if state == nil {
		return &Channel{files: r}
	}
	return newChannel(r, state.VerifiedChains)
}

// Verify returns the channel of a connection of another listener, by the authorities that are trusted here and now. It has no
// identity when none of them vouches for a client of its certificate.
func (r *Reloader) Verify(state *tls.ConnectionState) *Channel {
	authorities := r.fresh().authorities
	if state == nil || len(state.PeerCertificates) == 0 || authorities == nil {
		return &Channel{files: r}
	}
	between := x509.NewCertPool()
	for _, cert := range state.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	chains, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: authorities, Intermediates: between, CurrentTime: r.options.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return &Channel{files: r}
	}
	return newChannel(r, chains)
}

func newChannel(r *Reloader, chains [][]*x509.Certificate) *Channel {
	c := &Channel{files: r}
	c.peer, _ = identity.FromChains(chains)
	for _, chain := range chains {
		c.roots = append(c.roots, identity.Fingerprint(chain[len(chain)-1]))
		for _, cert := range chain {
			if c.notAfter.IsZero() || cert.NotAfter.Before(c.notAfter) {
				c.notAfter = cert.NotAfter
			}
		}
	}
	return c
}

// Identity implements [identity.Channel]. The peer has its identity while every certificate of every chain is valid, and every
// authority at the end of one is trusted. A peer with another chain connects again.
func (c *Channel) Identity() (identity.Peer, error) {
	if _, err := c.peer.Identity(); err != nil {
		return identity.Peer{}, err
	}
	if c.files.options.Now().After(c.notAfter) {
		return identity.Peer{}, identity.ErrExpired
	}
	if now := c.files.current.Load(); now != c.checked.Load() {
		for _, root := range c.roots {
			if _, ok := now.trusted[root]; !ok {
				return identity.Peer{}, identity.ErrUntrusted
			}
		}
		c.checked.Store(now)
	}
	return c.peer, nil
}
