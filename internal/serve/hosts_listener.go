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

	"github.com/portcullis-mesh/portcullis/dispatcher/session"
	"github.com/portcullis-mesh/portcullis/handshake"
)

// hostHandshakesPart is the part of the processors that handshakes of hosts and direct callers may compute on:
// 1/hostHandshakesPart. Of API servers it is half: they wait with a review, hosts without one.
const hostHandshakesPart = 4

// serveHosts serves hosts, direct callers and operators until the gRPC server is stopped.
func (a *app) serveHosts(ctx context.Context, l net.Listener) error {
	secured := handshake.NewListener(session.Listener(l), handshake.Options{
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

// handshaken are the credentials of connections whose handshake a [handshake.Listener] has done.
type handshaken struct {
	credentials.TransportCredentials
}

// newHandshaken are credentials of a server alone.
func newHandshaken() handshaken { return handshaken{credentials.NewTLS(nil)} }

// Clone is part of credentials.TransportCredentials.
func (c handshaken) Clone() credentials.TransportCredentials {
	return handshaken{c.TransportCredentials.Clone()}
}

// ServerHandshake is part of credentials.TransportCredentials: it says what the handshake has found, as that of
// credentials.NewTLS does.
func (handshaken) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	under := conn
	if open, ok := conn.(*channelConn); ok {
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
	return conn, credentials.TLSInfo{
		State: state, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}
