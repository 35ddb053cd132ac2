package mesh

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
)

// Link is an address in front of another one. The connections over it can be
// cut, or hold bytes back. It is safe for concurrent use.
type Link struct {
	// Address is the host:port.
	Address string

	to          string
	connections sync.WaitGroup

	mu   sync.Mutex
	cut  bool
	open map[net.Conn]struct{}
	free chan struct{} // closed while bytes pass
}

// NewLink starts a link to a host:port, which ends with the test.
func NewLink(t testing.TB, to string) *Link {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{Address: listener.Addr().String(), to: to, open: map[net.Conn]struct{}{}, free: make(chan struct{})}
	close(l.free)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	l.connections.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the listener is closed
			}
			l.connections.Go(func() { l.forward(ctx, conn) })
		}
	})
	t.Cleanup(func() {
		cancel()
		listener.Close()
		l.connections.Wait()
	})
	return l
}

// Cut ends all connections, and each new one at once.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for conn := range l.open {
		conn.Close()
	}
}

// Hold lets no byte pass, and leaves connections open: as a network that
// drops all packets.
func (l *Link) Hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = make(chan struct{})
}

// Mend lets new connections pass again, and after Hold the bytes that were held
// back.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = false
	select {
	case <-l.free:
	default:
		close(l.free)
	}
}

// passes returns when bytes may pass, or ctx ends.
func (l *Link) passes(ctx context.Context) {
	l.mu.Lock()
	free := l.free
	l.mu.Unlock()
	select {
	case <-free:
	case <-ctx.Done():
	}
}

// linkConn is one end of a connection over a link.
type linkConn struct {
	*net.TCPConn

	link *Link
	ctx  context.Context // of the connection
}

// Write waits until the link lets bytes pass.
func (c linkConn) Write(data []byte) (int, error) {
	c.link.passes(c.ctx)
	return c.TCPConn.Write(data)
}

// ReadFrom is ReadFrom of io.ReaderFrom, through Write.
func (c linkConn) ReadFrom(from io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, from)
}

// forward is one connection, until either side ends it or the link is cut.
func (l *Link) forward(ctx context.Context, client net.Conn) {
	defer client.Close()
	if !l.opens(client) {
		return
	}
	defer l.closed(client)
	server, err := new(net.Dialer).DialContext(ctx, "tcp4", l.to)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	splice(ctx, l.end(ctx, client), l.end(ctx, server))
}

// end is a connection to either side.
func (l *Link) end(ctx context.Context, conn net.Conn) net.Conn {
	return linkConn{conn.(*net.TCPConn), l, ctx}
}

// opens is whether a connection may be used.
func (l *Link) opens(client net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cut {
		l.open[client] = struct{}{}
	}
	return !l.cut
}

func (l *Link) closed(client net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, client)
}
