// Package tunnel lets dispatchers reach the API server of a cluster through a bridge that runs in it: the bridge dials, and serves
// HTTP/2 on a gRPC stream of ClusterService. The dispatcher has no credentials of the cluster. The bridge passes on the few
// requests that package cluster makes (allowed.go), with its own credentials, and calls conversion webhooks (conversion.go).
//
// A dispatcher uses [Server], a bridge [Serve]. Both may be used from any goroutine.
package tunnel

import (
	"io"
	"net"
	"sync"
	"time"
)

// maxChunk is the largest message, in bytes.
const maxChunk = 64 << 10

// streamConn is a stream of messages as a net.Conn. It has no deadlines: HTTP/2 pings find a dead peer.
type streamConn struct {
	send  func([]byte) error
	recv  func() ([]byte, error)
	end   func()
	once  sync.Once
	write sync.Mutex

	unread []byte // of one reader
}

// Read is part of net.Conn. It is called by one goroutine.
func (c *streamConn) Read(p []byte) (int, error) {
	for len(c.unread) == 0 {
		data, err := c.recv()
		if err != nil {
			return 0, err
		}
		c.unread = data
	}
	n := copy(p, c.unread)
	c.unread = c.unread[n:]
	return n, nil
}

// Write is part of net.Conn.
func (c *streamConn) Write(p []byte) (written int, err error) {
	c.write.Lock()
	defer c.write.Unlock()
	for len(p) > 0 {
		n := min(len(p), maxChunk)
		if err := c.send(append([]byte(nil), p[:n]...)); err != nil { // gRPC keeps the message
			return written, io.ErrClosedPipe
		}
		written, p = written+n, p[n:]
	}
	return written, nil
}

// Close is part of net.Conn.
func (c *streamConn) Close() error {
	c.once.Do(c.end)
	return nil
}

type address struct{}

// Network is part of net.Addr.
func (address) Network() string { return "grpc" }

// String is part of net.Addr.
func (address) String() string { return "tunnel" }

// LocalAddr is part of net.Conn.
func (*streamConn) LocalAddr() net.Addr { return address{} }

// RemoteAddr is part of net.Conn.
func (*streamConn) RemoteAddr() net.Addr { return address{} }

// SetDeadline is part of net.Conn.
func (*streamConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline is part of net.Conn.
func (*streamConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is part of net.Conn.
func (*streamConn) SetWriteDeadline(time.Time) error { return nil }
