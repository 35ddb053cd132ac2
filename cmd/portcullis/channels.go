package main

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// channel tells connections of one listener apart while they are open.
type channel struct{ local, remote string }

func channelOf(local, remote net.Addr) channel { return channel{local.String(), remote.String()} }

// channels are the open connections of the listener that hosts and direct callers share: a stop lets go of the callers
// first, and of the hosts that judge for them when no caller is left. It is safe for concurrent use.
type channels struct {
	changed chan struct{} // holds a wake-up for drained

	mu    sync.Mutex
	hosts map[channel]int // open connections, and the host streams on each
}

func newChannels() *channels {
	return &channels{changed: make(chan struct{}, 1), hosts: make(map[channel]int)}
}

// listen has the connections of a listener known.
func (c *channels) listen(l net.Listener) net.Listener { return channelListener{l, c} }

// stream is an interceptor: a connection with a host stream is a host's for as long as that lasts.
func (c *channels) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if p, ok := peer.FromContext(stream.Context()); ok && info.FullMethod == hostv1.HostService_Connect_FullMethodName {
		at := channelOf(p.LocalAddr, p.Addr)
		c.add(at, 1)
		defer c.add(at, -1)
	}
	return handler(srv, stream)
}

// add counts the host streams of a connection, if it is open.
func (c *channels) add(at channel, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.hosts[at]; open {
		c.hosts[at] += n
		c.wake()
	}
}

func (c *channels) opened(at channel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hosts[at] = 0
}

func (c *channels) closed(at channel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.hosts, at)
	c.wake()
}

func (c *channels) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// callers is how many open connections are not those of hosts.
func (c *channels) callers() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, streams := range c.hosts {
		if streams == 0 {
			n++
		}
	}
	return n
}

// drained returns when hosts alone are connected, or ctx ends. One goroutine at a time may wait.
func (c *channels) drained(ctx context.Context) {
	for c.callers() > 0 {
		select {
		case <-c.changed:
		case <-ctx.Done():
			return
		}
	}
}

// channelListener is a listener whose connections are known while they are open.
type channelListener struct {
	net.Listener

	channels *channels
}

// Accept is part of net.Listener.
func (l channelListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	at := channelOf(conn.LocalAddr(), conn.RemoteAddr())
	l.channels.opened(at)
	return &channelConn{Conn: conn, closed: sync.OnceFunc(func() { l.channels.closed(at) })}, nil
}

// channelConn is a connection that says when it is closed.
type channelConn struct {
	net.Conn

	closed func()
}

// Close is part of net.Conn.
func (c *channelConn) Close() error {
	c.closed() // first: what is closed may come again with the same address
	return c.Conn.Close()
}
