package handshake

import (
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// turnstile bounds how many handshakes compute at a time. One that has begun comes before those that have not: work that was
// done is lost when its connection runs out of time.
type turnstile struct {
	slots chan struct{} // holds one for each that computes
	door  chan struct{} // as wide as slots: of those that have not begun, these few compete with those that have
}

func newTurnstile(n int) *turnstile {
	return &turnstile{slots: make(chan struct{}, n), door: make(chan struct{}, n)}
}

// enter waits until the caller may compute; false when its connection is closed before.
func (g *turnstile) enter(begun bool, closed <-chan struct{}) bool {
	if !begun {
		select {
		case g.door <- struct{}{}:
			defer func() { <-g.door }()
		case <-closed:
			return false
		}
	}
	select {
	case g.slots <- struct{}{}:
		return true
	case <-closed:
		return false
	}
}

func (g *turnstile) leave() { <-g.slots }

// gatedConn is the connection below TLS. While its handshake lasts, what follows a read is computed behind the turnstile, until
// the answer is written or more is needed. All but Close belongs to the goroutine of the handshake until that is over.
type gatedConn struct {
	net.Conn

	gate      *turnstile
	begun     time.Time
	entered   bool          // at least once
	computing bool          // holds a place behind the turnstile
	over      bool          // the handshake
	took      time.Duration // what the handshake took, once it is over
	closed    chan struct{}
	close     func() error
}

func newGatedConn(conn net.Conn, g *turnstile) *gatedConn {
	c := &gatedConn{Conn: conn, gate: g, begun: time.Now(), closed: make(chan struct{})}
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
	if !c.gate.enter(c.entered, c.closed) {
		return 0, net.ErrClosed
	}
	c.entered, c.computing = true, true
	return n, nil
}

// Write is part of net.Conn. Nothing is computed behind it but what the next read will gate again.
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
		c.gate.leave()
	}
}

// end opens the connection: from now on nothing is gated.
func (c *gatedConn) end() {
	c.leave()
	c.over, c.took = true, time.Since(c.begun)
}

// Took is how long the handshake of a connection took, with what it waited for; false for one that no [Listener] has
// accepted.
func Took(conn *tls.Conn) (time.Duration, bool) {
	gated, ok := conn.NetConn().(*gatedConn)
	if !ok {
		return 0, false
	}
	return gated.took, true
}
