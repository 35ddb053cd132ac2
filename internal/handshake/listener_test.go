package handshake

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shaker is a listener with bounded handshakes, and how to call it.
type shaker struct {
	*Listener

	addr   string
	config *tls.Config // of a client
	taken  *counted
}

// counted is a listener that counts the connections it gave.
type counted struct {
	net.Listener
	atomic.Int32
}

func (c *counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.Add(1)
	}
	return conn, err
}

// shake runs handshakes on loopback, at the time of options.TLS; hello is told of each that computes.
func shake(t *testing.T, options Options, hello func()) *shaker {
	t.Helper()
	ca, err := certs.NewAuthority("handshake test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	inner := &tls.Config{
		Certificates: []tls.Certificate{issue(t, ca, certs.Spec{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: pool(ca), MinVersion: tls.VersionTLS12,
	}
	if options.TLS != nil {
		inner.Time = options.TLS.Time
	}
	options.TLS = inner.Clone()
	options.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		hello()
		return inner, nil
	}
	options.timeout = patience
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken := &counted{Listener: listener}
	s := &shaker{Listener: NewListener(taken, options), taken: taken, addr: listener.Addr().String(), config: &tls.Config{
		Certificates: []tls.Certificate{issue(t, ca, certs.Spec{Identity: "kube-apiserver", Client: true})},
		RootCAs:      pool(ca), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12,
	}}
	ended := make(chan struct{})
	go func() { s.Run(t.Context()); close(ended) }()
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
	})
	return s
}

func pool(ca *certs.Authority) *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.CA().CertPEM)
	return roots
}

func issue(t *testing.T, ca *certs.Authority, spec certs.Spec) tls.Certificate {
	t.Helper()
	pair, err := ca.Issue(spec)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// patience bounds waits for steps that take no time.
const patience = 20 * time.Second

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never became true: %s", what)
		}
	}
}

// call makes a connection in the background; it is over when the handshake is.
func (s *shaker) call(t *testing.T, callers *sync.WaitGroup) {
	t.Helper()
	callers.Go(func() {
		conn, err := tls.Dial("tcp", s.addr, s.config)
		if err != nil {
			t.Errorf("calling: %v", err)
			return
		}
		conn.Close()
	})
}

// silent opens a connection that sends the text says and nothing else.
func (s *shaker) silent(t *testing.T, says string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, says); err != nil {
		t.Fatal(err)
	}
	return conn
}

// take accepts n connections, and closes them.
func (s *shaker) take(t *testing.T, n int) {
	t.Helper()
	for range n {
		conn, err := s.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if secure, ok := conn.(*tls.Conn); !ok || !secure.ConnectionState().HandshakeComplete {
			t.Errorf("accepted %T before its handshake was done", conn)
		}
		conn.Close()
	}
}

// Of many connections that come at once no more compute than may, and all are served.
func TestHandshakesComputeWithinTheirLimit(t *testing.T) {
	const limit, callers = 2, 40
	var computing, most atomic.Int32
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	s := shake(t, Options{max: callers, MaxComputing: limit}, func() {
		n := computing.Add(1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		<-held
		computing.Add(-1)
	})
	t.Cleanup(release) // before the listener's, which waits for running handshakes
	var calls sync.WaitGroup
	for range callers {
		s.call(t, &calls)
	}
	eventually(t, "the limit is reached", func() bool { return computing.Load() == limit })
	eventually(t, "as many stand at the door", func() bool { return len(s.limit.door) == limit })
	eventually(t, "all others wait", func() bool { return s.taken.Load() == callers })
	release()
	s.take(t, callers)
	calls.Wait()
	if got := most.Load(); got != limit {
		t.Errorf("%d computed at a time, want %d", got, limit)
	}
	eventually(t, "nothing is held but for the next", func() bool {
		return len(s.pending) == 1 && len(s.limit.slots)+len(s.limit.door) == 0
	})
}

// Who stalls its handshake, before its first word or in the middle of it, keeps nobody from computing.
func TestStalledHandshakesDoNotCompute(t *testing.T) {
	var hellos atomic.Int32
	s := shake(t, Options{max: 8, MaxComputing: 1}, func() { hellos.Add(1) })
	s.silent(t, "")
	s.silent(t, "\x16\x03\x01\x00\xff") // a record that is announced
	// This connection gets an answer to its hello, and never goes on.
	stalls, far := net.Pipe()
	defer far.Close()
	go func() { _ = tls.Client(stalls, s.config).HandshakeContext(t.Context()) }()
	defer stalls.Close()
	hello := make([]byte, 4096)
	n, err := far.Read(hello)
	if err != nil {
		t.Fatal(err)
	}
	s.silent(t, string(hello[:n]))
	eventually(t, "its hello is answered", func() bool { return hellos.Load() == 1 && len(s.limit.slots) == 0 })

	var calls sync.WaitGroup
	for range 3 {
		s.call(t, &calls)
	}
	s.take(t, 3)
	calls.Wait()
}

// Past the bound on their number connections are left to the kernel, until one before them is done.
func TestTheNumberOfHandshakesIsBounded(t *testing.T) {
	s := shake(t, Options{max: 2, MaxComputing: 1}, func() {})
	first := s.silent(t, "")
	s.silent(t, "")
	eventually(t, "both are taken", func() bool { return s.taken.Load() == 2 })
	var calls sync.WaitGroup
	s.call(t, &calls)
	if n := s.taken.Load(); n != 2 {
		t.Errorf("%d connections are taken, want 2", n)
	}
	first.Close()
	s.take(t, 1)
	calls.Wait()
}

func TestHandshakesThatHaveBegunComeFirst(t *testing.T) {
	g, never := newHandshakeLimit(1), make(chan struct{})
	if !g.enter(false, never) {
		t.Fatal("the first may not enter")
	}
	order := make(chan string, 3)
	var waiting sync.WaitGroup
	come := func(name string, begun bool) {
		waiting.Go(func() {
			if g.enter(begun, never) {
				order <- name
				g.leave()
			}
		})
	}
	come("new at the door", false)
	eventually(t, "the door is taken", func() bool { return len(g.door) == 1 })
	come("new", false)
	come("begun", true)
	g.leave()
	waiting.Wait()
	got := []string{<-order, <-order, <-order}
	// One stands at the door already, and may be ahead; the other new one cannot be before both.
	if got[0] == "new" {
		t.Errorf("order = %q", got)
	}
	closed := make(chan struct{})
	close(closed)
	g.slots <- struct{}{}
	if g.enter(true, closed) || g.enter(false, closed) {
		t.Error("a connection that is closed has entered")
	}
	if len(g.door) != 0 {
		t.Error("it stands in the door")
	}
}

// A stop gives up the handshakes that are under way, wherever they are.
func TestClosingEndsHandshakes(t *testing.T) {
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	var hellos atomic.Int32
	s := shake(t, Options{max: 3, MaxComputing: 1}, func() { hellos.Add(1); <-held })
	t.Cleanup(release) // before the listener's, which waits for running handshakes
	s.silent(t, "")
	for range 2 {
		go func() {
			if conn, err := tls.Dial("tcp", s.addr, s.config); err == nil {
				conn.Close()
			}
		}()
	}
	// The other one waits at the door, or inside it: a hello that is read in two parts lets it enter in between.
	eventually(t, "one computes", func() bool { return hellos.Load() == 1 && s.taken.Load() == 3 })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	release()
	if _, err := s.Accept(); err == nil {
		t.Error("a closed listener accepts")
	}
	eventually(t, "all are given up", func() bool { return len(s.pending) == 0 })
}

// Took knows the time of a handshake for connections that a listener has accepted, and for no others.
func TestTheTimeOfAHandshakeIsKnown(t *testing.T) {
	s := shake(t, Options{}, func() {})
	var calls sync.WaitGroup
	s.call(t, &calls)
	conn, err := s.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	secure, ok := conn.(*tls.Conn)
	if took, known := Took(secure); !ok || !known || took <= 0 {
		t.Errorf("it took %s; known: %t", took, known)
	}
	if _, known := Took(tls.Server(secure.NetConn().(*gatedConn).Conn, s.config)); known {
		t.Error("the time of a connection is known that no listener has accepted")
	}
	calls.Wait()
}

// A source that floods the listener has the rest of its connections closed, and another one does not wait behind them.
func TestASourceHasNoMoreHandshakesThanItLeavesFree(t *testing.T) {
	const most = 8
	s := shake(t, Options{max: most, ShareSources: true}, func() {})
	var silent []net.Conn
	for range most / 2 {
		silent = append(silent, s.silent(t, ""))
	}
	eventually(t, "half of the handshakes are one source's", func() bool { return len(s.pending) == most/2+1 })
	for range 3 * most { // behind them, and more than there are places
		late := s.silent(t, "")
		if _, err := late.Read(make([]byte, 1)); err == nil {
			t.Error("a connection past the share is answered")
		}
	}
	if probe, err := net.Listen("tcp", "127.0.0.2:0"); err != nil {
		citest.Lacks(t, fmt.Sprint("this system has no second loopback address: ", err))
	} else {
		probe.Close()
	}
	other := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	done := make(chan error, 1)
	go func() {
		conn, err := tls.DialWithDialer(other, "tcp", s.addr, s.config)
		if err == nil {
			conn.Close()
		}
		done <- err
	}()
	s.take(t, 1)
	if err := <-done; err != nil {
		t.Errorf("another source: %v", err)
	}
	for _, conn := range silent {
		conn.Close()
	}
	eventually(t, "none is left", func() bool { return len(s.pending) == 1 })
	var calls sync.WaitGroup
	s.call(t, &calls)
	s.take(t, 1)
	calls.Wait()
}

func TestSharesOfSources(t *testing.T) {
	s, from := newSources(9), func(text string) netip.Prefix {
		return sourceOf(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text)))
	}
	one, same, two := from("[2001:db8::1]:1"), from("[2001:db8::ffff:1]:2"), from("192.0.2.1:3")
	if one != same || one == two || two != from("[::ffff:192.0.2.1]:4") || two == from("192.0.2.2:3") {
		t.Errorf("sources are %s, %s, %s", one, same, two)
	}
	enter := func(p netip.Prefix) (n int) {
		for s.enter(p) {
			n++
		}
		return n
	}
	if n := enter(one); n != 4 {
		t.Errorf("one source has %d handshakes of 9, want 4", n)
	}
	if n := enter(two); n != 2 {
		t.Errorf("another one has %d, want 2", n)
	}
	s.leave(one)
	if s.enter(one) || !s.enter(from("192.0.2.3:1")) {
		t.Error("the share does not depend on what is free")
	}
	for p, n := range map[netip.Prefix]int{one: 3, two: 2, from("192.0.2.3:1"): 1} {
		for range n {
			s.leave(p)
		}
	}
	if s.all != 0 || len(s.held) != 0 {
		t.Errorf("%d handshakes of %d sources are left", s.all, len(s.held))
	}
}

func TestTheExpiredCertificateOfAPeerIsLoggedOnceAMinute(t *testing.T) {
	var log lines
	s := shake(t, Options{
		TLS:    &tls.Config{Time: func() time.Time { return time.Now().Add(24 * time.Hour) }, MinVersion: tls.VersionTLS12},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}, func() {})
	for range 3 {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tls.Client(conn, s.config).Read(make([]byte, 1)); err == nil {
			t.Error("an expired certificate is accepted")
		}
		_, _ = io.Copy(io.Discard, conn) // until it is closed, which is after the log
		_ = conn.Close()
	}
	if all := log.String(); strings.Count(all, "level=WARN") != 1 || !strings.Contains(all, "has expired") || !strings.Contains(all, "kube-apiserver") {
		t.Errorf("log:\n%s\nwant one line, which names the certificate", all)
	}
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
