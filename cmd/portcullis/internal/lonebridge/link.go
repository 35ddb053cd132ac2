package lonebridge

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
)

// checkedLink are credentials of connections that find a link that is cut without a word. The kernel closes a connection when the peer's kernel has
// answered nothing for 3 s: no data, by the TCP_USER_TIMEOUT that gRPC sets with its keepalive, and no probes, which are sent while there are no
// data. The keepalive of gRPC is too slow alone: it pings after 10 s at the earliest. It remains for a dispatcher that stands still while its kernel
// answers. A dialer could set this too, but gRPC takes no HTTPS_PROXY into account with one.
type checkedLink struct {
	credentials.TransportCredentials
}

// ClientHandshake is part of credentials.TransportCredentials.
func (c checkedLink) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 3}); err != nil {
			return nil, nil, err
		}
	}
	return c.TransportCredentials.ClientHandshake(ctx, authority, conn)
}

// Clone is part of credentials.TransportCredentials.
func (c checkedLink) Clone() credentials.TransportCredentials {
	return checkedLink{c.TransportCredentials.Clone()}
}
