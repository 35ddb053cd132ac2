package bridge

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"
)

// DefaultMaxHandshakes is how many connections may be in their TLS handshake at a time. Those behind them are not taken
// yet: they wait in the kernel, as long as their callers like. One in its handshake costs some 30 kB.
const DefaultMaxHandshakes = 4096

// computingShare is the part of the processors that may compute handshakes at a time: 1/computingShare.
const computingShare = 2

// defaultComputing is how many handshakes may compute at a time. A handshake with client certificates takes about half a
// millisecond of a processor. When two thousand connections come at once, as after the restart of a replica, the others
// have to wait: host streams and reviews under way go on with the rest of the processors.
func defaultComputing() int { return max(1, runtime.GOMAXPROCS(0)/computingShare) }

// handshakes is a listener that accepts connections whose TLS handshake is done. It bounds how many handshakes are under
// way, how many of them compute, and how long each takes. Waiting for the peer is not computing: who stalls its handshake
// keeps nobody else waiting.
type handshakes struct {
	net.Listener

	tls     *tls.Config
	timeout time.Duration
	logger  *slog.Logger
	gate    *turnstile
	pending chan struct{} // holds one for each connection in its handshake
	done    chan accepted
	closed  chan struct{}
	close   func() error
}

// accepted is what Accept returns.
type accepted struct {
	conn net.Conn
	err  error
}

func newHandshakes(listener net.Listener, options ServerOptions) *handshakes {
	h := &handshakes{
		Listener: listener, tls: options.TLS, timeout: options.ReadHeaderTimeout, logger: options.Logger,
		gate:    newTurnstile(options.MaxComputingHandshakes),
		pending: make(chan struct{}, options.MaxHandshakes),
		done:    make(chan accepted),
		closed:  make(chan struct{}),
	}
	h.close = sync.OnceValue(func() error {
		close(h.closed)
		return listener.Close()
	})
	return h
}

// run takes connections until the listener is closed, and returns when none is in its handshake any more.
func (h *handshakes) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var shaking sync.WaitGroup
	defer shaking.Wait()
	defer cancel()
	for {
		select {
		case h.pending <- struct{}{}:
		case <-h.closed:
			return
		}
		conn, err := h.Listener.Accept()
		if err != nil {
			<-h.pending
			if !h.hand(accepted{err: err}) {
				return
			}
			continue
		}
		shaking.Go(func() {
			defer func() { <-h.pending }()
			h.shake(ctx, conn)
		})
	}
}

// shake leads one connection through its handshake.
func (h *handshakes) shake(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	gated := newGatedConn(conn, h.gate)
	secure := tls.Server(gated, h.tls)
	err := secure.HandshakeContext(ctx)
	gated.end()
	if err != nil {
		h.logger.Debug("TLS handshake error", slog.String("from", conn.RemoteAddr().String()), slog.Any("error", err))
		adviseHTTPS(err)
		_ = gated.Close()
		return
	}
	if !h.hand(accepted{conn: secure}) {
		_ = secure.Close()
	}
}

// hand gives what was accepted to Accept; false when nobody wants it any more.
func (h *handshakes) hand(a accepted) bool {
	select {
	case h.done <- a:
		return true
	case <-h.closed:
		return false
	}
}

// Accept returns the next connection that is ready, or the error of the listener.
func (h *handshakes) Accept() (net.Conn, error) {
	select {
	case a := <-h.done:
		return a.conn, a.err
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close closes the listener. Handshakes under way are given up when run returns.
func (h *handshakes) Close() error { return h.close() }

// adviseHTTPS answers who speaks HTTP to a port of HTTPS in the language that it understands.
func adviseHTTPS(err error) {
	var record tls.RecordHeaderError
	methods := []string{"GET /", "POST ", "PUT /", "HEAD ", "OPTIO"}
	if errors.As(err, &record) && record.Conn != nil && slices.Contains(methods, string(record.RecordHeader[:])) {
		_, _ = io.WriteString(record.Conn, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"+
			"this port speaks HTTPS: use an https:// URL\n")
	}
}

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
