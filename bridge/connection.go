package bridge

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/handshake"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// connection is shared by the requests of a connection, in their contexts.
type connection struct {
	channel   identity.Channel
	handshake time.Duration // of TLS
	counted   atomic.Bool   // handshake, against the time of the first request

	// Of a connection without the identity of a certificate; nil for others.
	secure    *tls.Conn
	strangers *strangers
	proved    atomic.Bool  // by a capability
	refused   atomic.Int32 // requests before that
}

type connectionKey struct{}

func (s *Server) withConnection(ctx context.Context, conn net.Conn) context.Context {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return ctx
	}
	state := secure.ConnectionState()
	took, _ := handshake.Took(secure)
	c := &connection{channel: s.options.Channel(&state), handshake: took}
	peer, err := c.channel.Identity()
	if err != nil {
		c.secure, c.strangers = secure, s.strangers
		s.strangers.add(secure)
	}
	s.logCertificate(ctx, peer, &state)
	return context.WithValue(ctx, connectionKey{}, c)
}

// logCertificate shows which of its certificates a caller presents, while they are replaced.
func (s *Server) logCertificate(ctx context.Context, peer identity.Peer, state *tls.ConnectionState) {
	if len(state.PeerCertificates) == 0 || !s.options.Logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	leaf := state.PeerCertificates[0]
	s.options.Logger.Debug("connection with a client certificate", slog.String("identity", peer.Name()),
		slog.String("serial", leaf.SerialNumber.Text(16)), slog.Time("ends", leaf.NotAfter))
}

func connectionOf(r *http.Request) *connection {
	if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
		return c
	}
	return &connection{channel: verified(r.TLS)} // behind another server than ours
}

// verified is a channel with the peer that the handshake has verified, for as long as the connection is open.
func verified(state *tls.ConnectionState) identity.Channel {
	peer, _ := identity.FromTLS(state)
	return peer
}

// waited returns the duration of the handshake for the first request of a connection, and 0 for later requests. The caller's time has begun
// with the handshake, which takes seconds when many connections come at once.
func (c *connection) waited() time.Duration {
	if c.counted.Swap(true) {
		return 0
	}
	return c.handshake
}
