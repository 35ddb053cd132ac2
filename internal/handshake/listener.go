// Package handshake is a listener of connections whose TLS handshake is done. It bounds how many handshakes are under way,
// how many of them compute, and how long each takes, so that thousands of clients that connect at once leave processors to
// the connections that are open. It does not depend on the protocol of a connection.
package handshake

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxHandshakes is the number of connections that may be in their handshake at a time. Those behind them are not accepted
	// yet: they wait in the kernel, as long as their callers like. One in its handshake costs some 30 kB.
	maxHandshakes = 4096
	// timeout bounds a handshake.
	timeout = 5 * time.Second
	// expiryWarnings is the shortest time between two warnings of certificates that have expired.
	expiryWarnings = time.Minute
	// maxName is the most characters of a certificate's name in a line of the log.
	maxName = 256
)

// DefaultComputing is how many handshakes may compute at a time where so large a part of the processors is left to them:
// 1/part, and one at least. A handshake with client certificates takes about half a millisecond of a processor.
func DefaultComputing(part int) int { return max(1, runtime.GOMAXPROCS(0)/part) }

// Options configure a listener.
type Options struct {
	// TLS is the configuration of the server. Required.
	TLS *tls.Config
	// MaxComputing is how many of them may compute at a time. When thousands of connections come at once, as after a
	// restart, the others have to wait: open connections go on with the rest of the processors. 0 is half of the processors, and
	// one at least.
	MaxComputing int
	// ShareSources bounds the connections of a source, an IPv4 address or an IPv6 network of 64 bits, to as many of the
	// handshakes as it leaves free: half, if no other one has any. Past that its connections are closed at once, so that others
	// wait behind few of them.
	ShareSources bool
	// Logger gets handshakes that fail, at debug level, and expired certificates of peers as warnings; nil logs nothing.
	Logger *slog.Logger

	max     int           // of tests
	timeout time.Duration // of tests
}

// Listener accepts connections whose handshake is done; they are of type [tls.Conn]. [Listener.Run] has to run. Waiting for
// the peer is not computing: a client that stalls its handshake keeps no other one waiting.
type Listener struct {
	net.Listener

	tls     *tls.Config
	timeout time.Duration
	logger  *slog.Logger
	limit   *handshakeLimit
	sources *sources      // nil when they are not bounded
	pending chan struct{} // holds one for each connection in its handshake
	done    chan accepted
	closed  chan struct{}
	close   func() error
	warned  atomic.Int64 // when an expired certificate was logged last, in nanoseconds since 1970; 0 never
}

// accepted is a result of Accept.
type accepted struct {
	conn net.Conn
	err  error
}

// NewListener makes a listener of another one, which it closes. It starts nothing.
func NewListener(inner net.Listener, o Options) *Listener {
	l := &Listener{
		Listener: inner, tls: o.TLS, timeout: cmp.Or(o.timeout, timeout), logger: o.Logger,
		limit:   newHandshakeLimit(cmp.Or(o.MaxComputing, DefaultComputing(2))),
		pending: make(chan struct{}, cmp.Or(o.max, maxHandshakes)),
		done:    make(chan accepted),
		closed:  make(chan struct{}),
	}
	if o.ShareSources {
		l.sources = newSources(cap(l.pending))
	}
	l.logger = cmp.Or(l.logger, slog.New(slog.DiscardHandler))
	l.close = sync.OnceValue(func() error {
		close(l.closed)
		return inner.Close()
	})
	return l
}

// Run takes connections until the listener is closed, and returns when none is in its handshake any more. The end of ctx
// gives up the handshakes under way.
func (l *Listener) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var shaking sync.WaitGroup
	defer shaking.Wait()
	defer cancel()
	for {
		select {
		case l.pending <- struct{}{}:
		case <-l.closed:
			return
		}
		conn, err := l.Listener.Accept()
		if err != nil {
			<-l.pending
			if !l.hand(accepted{err: err}) {
				return
			}
			continue
		}
		from := sourceOf(conn.RemoteAddr())
		if !l.sources.enter(from) {
			<-l.pending
			l.logger.Debug("connection closed: too many handshakes of its source", slog.String("source", from.String()))
			_ = conn.Close()
			continue
		}
		shaking.Go(func() {
			defer func() { <-l.pending }()
			defer l.sources.leave(from)
			l.shake(ctx, conn)
		})
	}
}

// shake leads one connection through its handshake.
func (l *Listener) shake(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	gated := newGatedConn(conn, l.limit)
	secure := tls.Server(gated, l.tls)
	err := secure.HandshakeContext(ctx)
	gated.end()
	if err != nil {
		l.logger.Debug("TLS handshake error", slog.String("from", conn.RemoteAddr().String()), slog.Any("error", err))
		l.warnOfExpiry(conn, err)
		adviseHTTPS(err)
		_ = gated.Close()
		return
	}
	if !l.hand(accepted{conn: secure}) {
		_ = secure.Close()
	}
}

// warnOfExpiry logs that the certificate of a peer has expired. Any peer can present such a certificate, so there is at most one line in
// expiryWarnings.
func (l *Listener) warnOfExpiry(conn net.Conn, err error) {
	var invalid x509.CertificateInvalidError
	if !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		return
	}
	now, before := time.Now(), l.warned.Load()
	if before != 0 && now.UnixNano()-before < int64(expiryWarnings) || !l.warned.CompareAndSwap(before, now.UnixNano()) {
		return
	}
	name := invalid.Cert.Subject.String()
	if len(invalid.Cert.URIs) > 0 {
		name = invalid.Cert.URIs[0].String()
	}
	l.logger.Warn("connection refused: the certificate of the peer has expired, or is not valid yet",
		slog.String("from", conn.RemoteAddr().String()), slog.String("certificate", fmt.Sprintf("%.*s", maxName, name)),
		slog.Time("notBefore", invalid.Cert.NotBefore), slog.Time("notAfter", invalid.Cert.NotAfter))
}

// hand gives a connection or an error to Accept. It reports false once the listener is closed.
func (l *Listener) hand(a accepted) bool {
	select {
	case l.done <- a:
		return true
	case <-l.closed:
		return false
	}
}

// Accept returns the next connection that is ready, or the error of the listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case a := <-l.done:
		return a.conn, a.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close closes the listener. Handshakes under way are given up when run returns.
func (l *Listener) Close() error { return l.close() }

// adviseHTTPS answers a client that speaks HTTP to a port of HTTPS.
func adviseHTTPS(err error) {
	var record tls.RecordHeaderError
	methods := []string{"GET /", "POST ", "PUT /", "HEAD ", "OPTIO"}
	if errors.As(err, &record) && record.Conn != nil && slices.Contains(methods, string(record.RecordHeader[:])) {
		_, _ = io.WriteString(record.Conn, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"+
			"this port speaks HTTPS: use an https:// URL\n")
	}
}
