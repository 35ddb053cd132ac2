package handshake

import (
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// handshakeLimit bounds how many handshakes compute at a time. Begun handshakes come first: their work is lost when their connection runs
// out of time.
type handshakeLimit struct {
	slots chan struct{} // holds one for each that computes
	door  chan struct{} // as wide as slots: of those that have not begun, these few compete with those that have
}

func newHandshakeLimit(n int) *handshakeLimit {
	return &handshakeLimit{slots: make(chan struct{}, n), door: make(chan struct{}, n)}
}

// enter waits until the caller may compute. It reports false if its connection is closed before.
func (l *handshakeLimit) enter(begun bool, closed <-chan struct{}) bool {
	if !begun {
		select {
		case l.door <- struct{}{}:
			defer func() { <-l.door }()
		case <-closed:
			return false
		}
	}
	select {
	case l.slots <- struct{}{}:
		return true
	case <-closed:
		return false
	}
}

func (l *handshakeLimit) leave() { <-l.slots }

// gatedConn is the connection below TLS. While its handshake lasts, the computation between a read and the next write or read counts
// against the limit. All but Close belongs to the goroutine of the handshake until that is over.
type gatedConn struct {
	net.Conn

	limit     *handshakeLimit
	begun     time.Time
	entered   bool          // at least once
	computing bool          // holds a slot of the limit
	over      bool          // the handshake
	took      time.Duration // of the handshake, once it is over
	closed    chan struct{}
	close     func() error
}

func newGatedConn(conn net.Conn, l *handshakeLimit) *gatedConn {
	c := &gatedConn{Conn: conn, limit: l, begun: time.Now(), closed: make(chan struct{})}
	c.close = sync.OnceValue(func() error {
		close(c.closed)
		return conn.Close()
	})
	return c
}

// Read is part of net.Conn.
func (c *gatedConn) Read(b []byte) (int, error) {
	if c.over {
		return c.Conn.Read(b)
	}
	c.leave()
	n, err := c.Conn.Read(b)
	if err != nil {
		return n, err
	}
	if !c.limit.enter(c.entered, c.closed) {
		return 0, net.ErrClosed
	}
	c.entered, c.computing = true, true
	return n, nil
}

// Write is part of net.Conn. Little is computed between it and the next read.
func (c *gatedConn) Write(b []byte) (int, error) {
	if !c.over {
		c.leave()
	}
	return c.Conn.Write(b)
}

// Close is part of net.Conn. It may be called from any goroutine, and again.
func (c *gatedConn) Close() error { return c.close() }

func (c *gatedConn) leave() {
	if c.computing {
		c.computing = false
		c.limit.leave()
	}
}

// end opens the connection: from now on nothing is gated.
func (c *gatedConn) end() {
	c.leave()
	c.over, c.took = true, time.Since(c.begun)
}

// Took returns the duration of the handshake of a connection, with its waits. It reports false for a connection that no [Listener]
// has accepted.
func Took(conn *tls.Conn) (time.Duration, bool) {
	gated, ok := conn.NetConn().(*gatedConn)
	if !ok {
		return 0, false
	}
	return gated.took, true
}
