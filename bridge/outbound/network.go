package outbound

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
)

// network is what the client holds of the operating system: connections, and attempts to make one. net/http goes on with
// an attempt when the call that wanted it is over, so this is what can end them all.
type network struct {
	dialer net.Dialer

	mu      sync.Mutex
	ends    map[*func()]struct{} // what ends each of them
	closed  bool
	drained chan struct{} // closed when closed is set and nothing is left
}

func newNetwork() *network {
	return &network{
		dialer:  net.Dialer{Timeout: ConnectTimeout, KeepAlive: KeepAlive},
		ends:    make(map[*func()]struct{}),
		drained: make(chan struct{}),
	}
}

// dial makes a connection.
func (n *network) dial(ctx context.Context, protocol, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	release, err := n.hold(cancel)
	if err != nil {
		return nil, err
	}
	defer release()
	inner, err := n.dialer.DialContext(ctx, protocol, address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner}
	if c.release, err = n.hold(func() { inner.Close() }); err != nil {
		inner.Close()
		return nil, err
	}
	return c, nil
}

// hold remembers what ends something until release is called. release may be called more than once.
func (n *network) hold(end func()) (release func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, errClosed
	}
	n.ends[&end] = struct{}{}
	return func() { n.release(&end) }, nil
}

// release forgets what was held.
func (n *network) release(end *func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, held := n.ends[end]; !held {
		return
	}
	delete(n.ends, end)
	if n.closed && len(n.ends) == 0 {
		close(n.drained)
	}
}

// len counts connections and attempts.
func (n *network) len() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.ends)
}

// close ends everything and waits until all of it was given back, or ctx has ended.
func (n *network) close(ctx context.Context) error {
	for _, end := range n.shut() {
		(*end)()
	}
	select {
	case <-n.drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d connections did not end: %w", n.len(), context.Cause(ctx))
	}
}

// shut lets nothing begin any more and returns what ends the rest.
func (n *network) shut() []*func() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed && len(n.ends) == 0 {
		close(n.drained)
	}
	n.closed = true
	return slices.Collect(maps.Keys(n.ends))
}

// conn is a connection that the network knows of.
type conn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
