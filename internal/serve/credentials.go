package serve

import (
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/portcullis-mesh/portcullis/certs"
	"github.com/portcullis-mesh/portcullis/identity"
)

// channelCredentials are the transport credentials of a gRPC server whose calls know who is at the other end of their channel,
// for as long as that holds.
type channelCredentials struct {
	credentials.TransportCredentials

	files *certs.Reloader
}

// channelInfo is the AuthInfo of a channel. What its certificate proves is worked out once.
type channelInfo struct {
	credentials.TLSInfo
	identity.Channel
}

// ServerHandshake is part of credentials.TransportCredentials.
func (c channelCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := c.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		return nil, nil, err
	}
	shaken, ok := info.(credentials.TLSInfo)
	if !ok {
		return secure, info, nil
	}
	known := c.files.Channel(&shaken.State)
	if open, ok := conn.(*channelConn); ok {
		open.secured(known)
	}
	return secure, channelInfo{shaken, known}, nil
}

// Clone is part of credentials.TransportCredentials.
func (c channelCredentials) Clone() credentials.TransportCredentials {
	return channelCredentials{c.TransportCredentials.Clone(), c.files}
}
