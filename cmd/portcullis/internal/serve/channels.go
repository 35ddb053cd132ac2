package serve

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/bridge"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	clusterv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/cluster/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// lapsedGrace is how long a connection stays open whose identity does not hold any more: its streams end before, and say why.
const lapsedGrace = stream.LapsedGrace + 3*time.Second

// channel tells connections of one listener apart while they are open.
type channel struct{ local, remote string }

func channelOf(local, remote net.Addr) channel { return channel{local.String(), remote.String()} }

// channels are the open connections of the listener that hosts and direct callers share: a stop lets go of the callers
// first, and of the hosts that judge for them when no caller is left; and those whose identity does not hold any more are closed.
// It is safe for concurrent use.
type channels struct {
	changed chan struct{} // holds a wake-up for drained

	mu   sync.Mutex
	open map[channel]*channelConn
}

func newChannels() *channels {
	return &channels{changed: make(chan struct{}, 1), open: make(map[channel]*channelConn)}
}

func (c *channels) listen(l net.Listener) net.Listener { return channelListener{l, c} }

// unary is an interceptor that refuses calls over a channel whose identity has lapsed. A bridge takes the trailer for a reason to
// connect again, and to repeat the review.
func (c *channels) unary(ctx context.Context, r any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if _, err := channelOfCall(ctx).Identity(); lapsed(err) {
		_ = grpc.SetTrailer(ctx, metadata.Pairs(bridge.UnjudgedTrailer, "true")) // fails outside of gRPC alone
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return handler(ctx, r)
}

// stream is an interceptor: a connection with a host stream is a host's for as long as that lasts. Other streams end when their
// identity does not hold any more; sessions look after themselves.
func (c *channels) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	p, ok := peer.FromContext(stream.Context())
	if !ok {
		return handler(srv, stream)
	}
	// Bridges stay as long as hosts: reviews in flight ask them.
	host, bridge := info.FullMethod == hostv1.HostService_Connect_FullMethodName, info.FullMethod == clusterv1.ClusterService_Serve_FullMethodName
	if host || bridge {
		at := channelOf(p.LocalAddr, p.Addr)
		c.add(at, 1)
		defer c.add(at, -1)
	}
	if host {
		return handler(srv, stream)
	}
	return streamWhile(channelOfCall(stream.Context()), srv, stream, handler)
}

// streamWhile handles a stream for as long as its channel has an identity.
func streamWhile(known identity.Channel, srv any, stream grpc.ServerStream, handler grpc.StreamHandler) error {
	_, err := known.Identity()
	switch {
	case lapsed(err):
		return status.Error(codes.Unauthenticated, err.Error())
	case err != nil: // a caller without an identity may ask for the health of the process
		return handler(srv, stream)
	}
	ctx, stop := identity.While(stream.Context(), known)
	defer stop()
	err = handler(srv, contextStream{stream, ctx})
	if _, why := known.Identity(); err != nil && lapsed(why) {
		return status.Error(codes.Unauthenticated, why.Error())
	}
	return err
}

type contextStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // of the stream, as grpc has it
}

// Context is part of grpc.ServerStream.
func (s contextStream) Context() context.Context { return s.ctx }

// lapsed reports whether there was an identity that does not hold any more.
func lapsed(err error) bool {
	return errors.Is(err, identity.ErrExpired) || errors.Is(err, identity.ErrUntrusted)
}

// add counts the host streams of a connection, if it is open.
func (c *channels) add(at channel, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn, open := c.open[at]; open {
		conn.streams += n
		c.wake()
	}
}

func (c *channels) opened(at channel, conn *channelConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[at] = conn
}

func (c *channels) closed(at channel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, at)
	c.wake()
}

func (c *channels) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// callers counts the open connections of callers other than hosts.
func (c *channels) callers() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		if conn.streams == 0 {
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

// run closes connections whose identity does not hold any more, until ctx ends.
func (c *channels) run(ctx context.Context) error {
	t := time.NewTicker(identity.CheckInterval)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			for _, conn := range c.lapsed(now) {
				_ = conn.Close()
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// lapsed are the connections whose identity has not held for lapsedGrace, as far as was looked.
func (c *channels) lapsed(now time.Time) []*channelConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*channelConn
	for _, conn := range c.open {
		if conn.known == nil {
			continue
		}
		if _, err := conn.known.Identity(); !lapsed(err) {
			continue
		}
		if conn.lapsed.IsZero() {
			conn.lapsed = now
		}
		if now.Sub(conn.lapsed) >= lapsedGrace {
			out = append(out, conn)
		}
	}
	return out
}

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
	known := &channelConn{Conn: conn, channels: l.channels, closed: sync.OnceFunc(func() { l.channels.closed(at) })}
	l.channels.opened(at, known)
	return known, nil
}

// channelConn is a connection that reports its end.
type channelConn struct {
	net.Conn

	channels *channels
	closed   func()

	// Guarded by the lock of channels.
	streams int              // of hosts
	known   identity.Channel // nil before the handshake is done
	lapsed  time.Time        // when it was first seen that known does not hold; zero while it does
}

// secured notes the identity at the other end.
func (c *channelConn) secured(known identity.Channel) {
	c.channels.mu.Lock()
	defer c.channels.mu.Unlock()
	c.known = known
}

// Close is part of net.Conn.
func (c *channelConn) Close() error {
	c.closed() // first: the next connection may have the same address
	return c.Conn.Close()
}

// channelOfCall is the channel that a call of gRPC came over; without an identity if the channel is not known.
func channelOfCall(ctx context.Context) identity.Channel {
	if p, ok := peer.FromContext(ctx); ok {
		if channel, ok := p.AuthInfo.(identity.Channel); ok {
			return channel
		}
	}
	return identity.Peer{}
}

// caller is the identity at the other end of a gRPC channel now; none if the channel is not known.
func caller(ctx context.Context) identity.Peer {
	who, _ := channelOfCall(ctx).Identity()
	return who
}
