package bridge

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/portcullis-mesh/portcullis/identity"
)

type channelKey struct{}

// withChannel lets the requests of a connection know who is at its other end. What that takes is done once.
func withChannel(ctx context.Context, conn net.Conn, channel func(*tls.ConnectionState) identity.Channel) context.Context {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return ctx
	}
	state := secure.ConnectionState()
	return context.WithValue(ctx, channelKey{}, channel(&state))
}

// channelOf is the channel that a request came over.
func channelOf(r *http.Request) identity.Channel {
	if channel, ok := r.Context().Value(channelKey{}).(identity.Channel); ok {
		return channel
	}
	return verified(r.TLS) // behind another server than ours
}

// verified is a channel whose peer stays who the handshake has verified.
func verified(state *tls.ConnectionState) identity.Channel {
	peer, _ := identity.FromTLS(state)
	return peer
}
