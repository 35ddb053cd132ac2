package bridge

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/handshake"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

const (
	// headerTimeout bounds the arrival of a request's headers. API servers send them at once.
	headerTimeout = 5 * time.Second
	// idleTimeout is longer than the 90 s after which API servers close an unused connection (SetTransportDefaults in
	// k8s.io/apimachinery/pkg/util/net): the side that closes second never closes on a request that is on its way.
	idleTimeout = 2 * time.Minute
	// DefaultStopTimeout bounds the wait for reviews during a stop: none takes longer than MaxTimeout.
	DefaultStopTimeout = MaxTimeout + writeGrace
	// maxHeaderBytes bounds a request's headers. API servers send a few hundred bytes.
	maxHeaderBytes = 32 << 10
)

// DrainHandler is the handler of a Server, for instance a Bridge.
type DrainHandler interface {
	http.Handler
	// Drain is called once, when the stop begins: from then on the handler is to be called not ready, and to ask its
	// callers to go elsewhere.
	Drain()
}

var _ DrainHandler = (*Bridge)(nil)

// ServerOptions configure a Server.
type ServerOptions struct {
	// Handler answers. Required.
	Handler DrainHandler
	// TLS is the configuration of the listener, as Reloader.ServerTLS makes it. ALPN offers its protocols, by preference; none are
	// DefaultALPN. Required.
	TLS *tls.Config
	// Channel identifies the peer of a connection. It is called once for each, after the handshake. nil means the peer that the
	// handshake has verified, for as long as the connection is open.
	Channel func(*tls.ConnectionState) identity.Channel
	// PropagationDelay is the time for which a stopping server goes on accepting connections, until load balancers and endpoints
	// have noticed that it is not ready. 0 does not wait.
	PropagationDelay time.Duration
	// StopTimeout bounds the wait for reviews in flight after that; 0 is DefaultStopTimeout.
	StopTimeout time.Duration
	// Logger gets the errors of connections, at debug level; nil logs nothing.
	Logger *slog.Logger
}

// The protocols of the JSON edge, as ALPN names them.
const (
	HTTP1 = "http/1.1"
	HTTP2 = "h2"
)

// DefaultALPN are the protocols that the JSON edge offers by default, by preference. A caller that offers both speaks HTTP/1.1: a
// review costs less processor, and callers open more connections, which spread over dispatchers (docs/design/0031-alpn.md).
func DefaultALPN() []string { return []string{HTTP1, HTTP2} }

// CheckALPN returns an error unless a listener for API servers may offer these protocols. HTTP/1.1 is required: API servers
// offer nothing else to a Service or to another machine (hookClientConfig in
// k8s.io/apiserver/pkg/util/webhook/client.go), and no handshake of theirs would succeed.
func CheckALPN(protocols []string) error {
	for i, p := range protocols {
		switch {
		case p != HTTP1 && p != HTTP2:
			return fmt.Errorf("%q is not a protocol of this listener: give %s, or %s and %s by preference", p, HTTP1, HTTP1, HTTP2)
		case slices.Contains(protocols[:i], p):
			return fmt.Errorf("%s is there twice: give it once", p)
		}
	}
	if !slices.Contains(protocols, HTTP1) {
		return fmt.Errorf("%s is missing: API servers speak it to every webhook that is not on their own machine; add it", HTTP1)
	}
	return nil
}

// Server serves a handler by HTTP/1.1 and HTTP/2 over TLS. Make it with NewServer; it serves once.
type Server struct {
	options   ServerOptions
	http      *http.Server
	strangers *strangers
	unused    unused
}

// NewServer makes a Server. It does no I/O.
func NewServer(options ServerOptions) (*Server, error) {
	if options.Handler == nil || options.TLS == nil {
		return nil, errors.New("bridge: a server needs a handler and a TLS configuration")
	}
	options.StopTimeout = cmp.Or(options.StopTimeout, DefaultStopTimeout)
	options.TLS = options.TLS.Clone()
	if len(options.TLS.NextProtos) == 0 {
		options.TLS.NextProtos = DefaultALPN()
	}
	if options.Channel == nil {
		options.Channel = verified
	}
	options.Logger = cmp.Or(options.Logger, slog.New(slog.DiscardHandler))
	s := &Server{options: options, strangers: newStrangers(), unused: unused{conns: map[net.Conn]struct{}{}}}
	s.http = &http.Server{
		Handler:           admitter{options.Handler},
		TLSConfig:         options.TLS.Clone(), // for HTTP/2 alone; package handshake does the handshakes
		ReadHeaderTimeout: headerTimeout,
		ConnContext:       s.withConnection,
		ConnState:         s.changed,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(options.Logger.Handler(), slog.LevelDebug),
		// Bodies and answers have deadlines of their own, which depend on the caller's timeout: see handler.go.
		DisableGeneralOptionsHandler: true,
	}
	return s, nil
}

// Serve serves the listener, which it closes, until ctx ends; then it stops without losing a review:
//
//  1. The handler drains: it is not ready any more, and its answers ask callers to close their connections.
//  2. For PropagationDelay everything goes on as before, while load balancers take the server out.
//  3. The listener and idle connections are closed, and reviews in flight are waited for, at most StopTimeout.
//  4. The remaining reviews are cut off, and the error reports them.
//
// It returns nil after a clean stop.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	// Reviews outlive ctx: its end begins the stop, and must not cancel the reviews that the stop waits for.
	s.http.BaseContext = func(net.Listener) context.Context { return context.WithoutCancel(ctx) }
	served := make(chan error, 1)
	secured := handshake.NewListener(listener, handshake.Options{
		TLS: s.options.TLS, Logger: s.options.Logger,
	})
	var shaking sync.WaitGroup
	shaking.Go(func() { secured.Run(context.WithoutCancel(ctx)) })
	defer shaking.Wait()
	defer func() { _ = secured.Close() }()
	go func() { served <- s.http.Serve(secured) }()

	select {
	case err := <-served:
		return errors.Join(fmt.Errorf("bridge: serving %v: %w", listener.Addr(), err), s.http.Close())
	case <-ctx.Done():
	}
	s.options.Handler.Drain()
	return s.stop(context.WithoutCancel(ctx), served)
}

// firstRequest is the time from the stop until connections are closed on which no request has come. API servers dial ahead of need, and
// net/http would wait 5 s for each such connection.
const firstRequest = time.Second

// changed is the ConnState of the server.
func (s *Server) changed(conn net.Conn, state http.ConnState) {
	s.unused.changed(conn, state)
	s.strangers.changed(conn, state)
}

// unused are the connections on which no request has come. Its methods may be called concurrently.
type unused struct {
	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	closing bool
}

func (u *unused) changed(conn net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(u.conns, conn)
	case u.closing:
		closeUnused(conn)
	default:
		u.conns[conn] = struct{}{}
	}
}

// close closes them, and those that come later.
func (u *unused) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closing = true
	for conn := range u.conns {
		closeUnused(conn)
	}
}

func closeUnused(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		hangUp(secure)
		return
	}
	_ = conn.Close()
}

// stop waits out the propagation delay, and shuts down within the stop's bound.
func (s *Server) stop(ctx context.Context, served <-chan error) error {
	delay := time.NewTimer(s.options.PropagationDelay)
	defer delay.Stop()
	select {
	case err := <-served:
		return errors.Join(fmt.Errorf("bridge: the listener failed during the stop: %w", err), s.http.Close())
	case <-delay.C:
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.StopTimeout)
	defer cancel()
	closing := time.AfterFunc(firstRequest, s.unused.close)
	defer closing.Stop()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("bridge: reviews were still in flight %v after the stop began: %w", s.options.StopTimeout, err), s.http.Close())
	}
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
