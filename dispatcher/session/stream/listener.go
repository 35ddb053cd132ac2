package stream

import (
	"context"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/peer"
)

// Listener makes a listener for hosts out of an ordinary one.
//
// At most UnsentBytes for a host wait in the kernel. Else megabytes of a large review can lie in the
// send buffer of a slow link, and urgent frames behind them, where nothing can overtake them any more. It changes nothing
// where the system does not know the option, and for connections that are not TCP.
//
// It counts the bytes of each connection: a session sees that a frame which takes seconds moves. With another
// listener it takes such a frame for silence.
func Listener(l net.Listener) net.Listener { return listener{l} }

// listener sets the option on each connection that it accepts, and counts.
type listener struct{ net.Listener }

// Accept implements [net.Listener].
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if t, ok := c.(*net.TCPConn); ok {
		limitUnsent(t)
	}
	return &conn{Conn: c}, nil
}

// Traffic is how many bytes a connection has carried, with TLS and HTTP/2.
type Traffic struct{ in, out atomic.Uint64 }

// conn is a connection that is counted.
type conn struct {
	net.Conn

	traffic Traffic
}

// Read implements [net.Conn].
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.traffic.in.Add(uint64(n))
	return n, err
}

// Write implements [net.Conn].
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.traffic.out.Add(uint64(n))
	return n, err
}

// RemoteAddr implements [net.Conn].
func (c *conn) RemoteAddr() net.Addr { return address{c.Conn.RemoteAddr(), &c.traffic} }

// address is the address of a host. It is all of a connection that gRPC shows to its streams, so that the traffic goes with it.
type address struct {
	net.Addr

	traffic *Traffic
}

// TrafficOf is the traffic of the connection of a stream; nil if it is not counted.
func TrafficOf(ctx context.Context) *Traffic {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(address); ok {
			return a.traffic
		}
	}
	return nil
}
