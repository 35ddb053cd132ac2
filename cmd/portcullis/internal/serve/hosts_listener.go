package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/handshake"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// hostHandshakesPart is the part of the processors that handshakes of hosts and direct callers may compute on:
// 1/hostHandshakesPart. Of API servers it is half: they wait with a review, hosts without one.
const hostHandshakesPart = 4

// serveHosts serves hosts, direct callers and operators until the gRPC server is stopped.
func (a *app) serveHosts(ctx context.Context, l net.Listener) error {
	secured := handshake.NewListener(stream.Listener(l), handshake.Options{
		TLS:          a.hostsEdge.ServerTLS(tls.VersionTLS13, tls.RequireAndVerifyClientCert, "h2"),
		MaxComputing: handshake.DefaultComputing(hostHandshakesPart), ShareSources: true, Logger: a.log,
	})
	var shaking sync.WaitGroup
	defer shaking.Wait()
	defer func() { _ = secured.Close() }()
	shaking.Go(func() { secured.Run(ctx) })
	if err := a.grpc.Serve(a.channels.listen(secured)); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// hostCredentials are the credentials of connections whose handshake a [handshake.Listener] has done. Calls learn the identity
// at the other end of their channel, for as long as that holds.
type hostCredentials struct {
	credentials.TransportCredentials

	files *certs.Reloader
}

// channelInfo is the AuthInfo of a channel. The identity in its certificate is determined once.
type channelInfo struct {
	credentials.TLSInfo
	identity.Channel
}

// Clone is part of credentials.TransportCredentials.
func (c hostCredentials) Clone() credentials.TransportCredentials {
	return hostCredentials{c.TransportCredentials.Clone(), c.files}
}

// ServerHandshake is part of credentials.TransportCredentials.
func (c hostCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	under := conn
	open, tracked := conn.(*channelConn)
	if tracked {
		under = open.Conn
	}
	secure, ok := under.(*tls.Conn)
	if !ok {
		return nil, nil, fmt.Errorf("a connection without TLS: %T", conn)
	}
	state := secure.ConnectionState()
	if !state.HandshakeComplete || state.NegotiatedProtocol != "h2" {
		return nil, nil, errors.New("the client does not offer HTTP/2 by ALPN")
	}
	known := c.files.Channel(&state)
	if tracked {
		open.secured(known)
	}
	info := credentials.TLSInfo{State: state, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	return conn, channelInfo{info, known}, nil
}
