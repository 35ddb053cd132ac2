package connect

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"

	"github.com/portcullis-mesh/portcullis/internal/certs"
)

var errHandshake = errors.New("the server took the connection, and has not answered the TLS handshake: does it speak TLS at this port?")

// Credentials are credentials of gRPC that read the certificate files of a client. [certs.Reloader.Explain] explains their errors. They may be
// used concurrently.
type Credentials struct {
	credentials.TransportCredentials

	files   *certs.Reloader
	failure *atomic.Pointer[error] // of the newest connection, until it has an answer; shared by clones
}

// NewCredentials returns credentials for a server whose certificate has a name.
func NewCredentials(files *certs.Reloader, serverName string) *Credentials {
	return &Credentials{credentials.NewTLS(files.ClientTLS(serverName)), files, &atomic.Pointer[error]{}}
}

// Err is why the newest connection has no answer; nil if it has one, and if TCP has failed.
func (c *Credentials) Err() error {
	if err := c.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Clone is part of credentials.TransportCredentials.
func (c *Credentials) Clone() credentials.TransportCredentials {
	return &Credentials{c.TransportCredentials.Clone(), c.files, c.failure}
}

// ClientHandshake is part of credentials.TransportCredentials.
func (c *Credentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c.failure.Store(&errHandshake)
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		if ctx.Err() == nil {
			c.failure.Store(nil)
			err = c.explained(err)
		}
		return nil, nil, err
	}
	return &unanswered{Conn: conn, credentials: c}, info, nil
}

func (c *Credentials) explained(err error) error {
	if explained := c.files.Explain(err); explained != nil {
		err = explained
		c.failure.Store(&explained)
	}
	return err
}

// unanswered is a connection that a server of TLS 1.3 may still refuse, until it answers.
type unanswered struct {
	net.Conn

	credentials *Credentials
	answered    atomic.Bool
}

// Read is part of net.Conn.
func (c *unanswered) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.answered.Load() {
		return n, err
	}
	if n > 0 {
		c.answered.Store(true)
		c.credentials.failure.Store(nil)
	} else if err != nil {
		err = c.credentials.explained(err)
	}
	return n, err
}

// Write is part of net.Conn. It may fail before the reason can be read.
func (c *unanswered) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil && !c.answered.Load() {
		err = c.credentials.explained(err)
	}
	return n, err
}
