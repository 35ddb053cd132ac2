package bridge

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/handshake"
	"github.com/portcullis-mesh/portcullis/identity"
)

// connection is shared by the requests of a connection, in their contexts.
type connection struct {
	channel   identity.Channel
	handshake time.Duration // of TLS
	counted   atomic.Bool   // handshake, against the time of the first request
}

type connectionKey struct{}

func withConnection(ctx context.Context, conn net.Conn, channel func(*tls.ConnectionState) identity.Channel) context.Context {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return ctx
	}
	state := secure.ConnectionState()
	took, _ := handshake.Took(secure)
	return context.WithValue(ctx, connectionKey{}, &connection{channel: channel(&state), handshake: took})
}

func connectionOf(r *http.Request) *connection {
	if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
		return c
	}
	return &connection{channel: verified(r.TLS)} // behind another server than ours
}

// verified is a channel whose peer stays the one that the handshake has verified.
func verified(state *tls.ConnectionState) identity.Channel {
	peer, _ := identity.FromTLS(state)
	return peer
}

// waited is how much of its time the caller of a request has spent on the handshake of its connection: that of the first
// request. When many connections come at once, that is seconds.
func (c *connection) waited() time.Duration {
	if c.counted.Swap(true) {
		return 0
	}
	return c.handshake
}
