package bridge

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/certs"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// shaker is a listener with bounded handshakes, and how to call it.
type shaker struct {
	*handshakes
	*edge
	config *tls.Config
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

// shake runs handshakes on loopback; hello is told of each that computes.
func shake(t *testing.T, options ServerOptions, hello func()) *shaker {
	t.Helper()
	ca, err := certs.NewAuthority("handshake test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	inner := serverTLS(t, ca, tls.RequireAndVerifyClientCert)
	options.TLS = inner.Clone()
	options.TLS.GetConfigForClient = func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		hello()
		return inner.GetConfigForClient(info)
	}
	options.Logger, options.ReadHeaderTimeout = slog.New(slog.DiscardHandler), patience
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken := &counted{Listener: listener}
	s := &shaker{handshakes: newHandshakes(taken, options), taken: taken, edge: &edge{addr: listener.Addr().String(), authority: ca}}
	s.config = s.clientTLS(t, ca, "kube-apiserver")
	ended := make(chan struct{})
	go func() { s.run(t.Context()); close(ended) }()
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
	})
	return s
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

// silent opens a connection that says nothing but what it is told to.
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
	s := shake(t, ServerOptions{MaxHandshakes: callers, MaxComputingHandshakes: limit}, func() {
		n := computing.Add(1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		<-held
		computing.Add(-1)
	})
	var calls sync.WaitGroup
	for range callers {
		s.call(t, &calls)
	}
	eventually(t, "the limit is reached", func() bool { return computing.Load() == limit })
	eventually(t, "as many stand at the door", func() bool { return len(s.gate.door) == limit })
	eventually(t, "all others wait", func() bool { return s.taken.Load() == callers })
	close(held)
	s.take(t, callers)
	calls.Wait()
	if got := most.Load(); got != limit {
		t.Errorf("%d computed at a time, want %d", got, limit)
	}
	eventually(t, "nothing is held but for the next", func() bool {
		return len(s.pending) == 1 && len(s.gate.slots)+len(s.gate.door) == 0
	})
}

// Who stalls its handshake, before its first word or in the middle of it, keeps nobody from computing.
func TestStalledHandshakesDoNotCompute(t *testing.T) {
	var hellos atomic.Int32
	s := shake(t, ServerOptions{MaxHandshakes: 8, MaxComputingHandshakes: 1}, func() { hellos.Add(1) })
	s.silent(t, "")
	s.silent(t, "\x16\x03\x01\x00\xff") // a record that is announced
	// One that gets an answer to its hello, and never goes on.
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
	eventually(t, "its hello is answered", func() bool { return hellos.Load() == 1 && len(s.gate.slots) == 0 })

	var calls sync.WaitGroup
	for range 3 {
		s.call(t, &calls)
	}
	s.take(t, 3)
	calls.Wait()
}

// Past the bound on their number connections are left to the kernel, until one before them is done.
func TestTheNumberOfHandshakesIsBounded(t *testing.T) {
	s := shake(t, ServerOptions{MaxHandshakes: 2, MaxComputingHandshakes: 1}, func() {})
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
	g, never := newTurnstile(1), make(chan struct{})
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
	var hellos atomic.Int32
	s := shake(t, ServerOptions{MaxHandshakes: 3, MaxComputingHandshakes: 1}, func() { hellos.Add(1); <-held })
	s.silent(t, "")
	for range 2 {
		go func() {
			if conn, err := tls.Dial("tcp", s.addr, s.config); err == nil {
				conn.Close()
			}
		}()
	}
	eventually(t, "one computes and one waits", func() bool { return hellos.Load() == 1 && len(s.gate.door) == 1 && s.taken.Load() == 3 })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	close(held)
	if _, err := s.Accept(); err == nil {
		t.Error("a closed listener accepts")
	}
	eventually(t, "all are given up", func() bool { return len(s.pending) == 0 })
}

func TestWhoSpeaksHTTPIsToldToSpeakHTTPS(t *testing.T) {
	e := serve(t, testOptions(allow))
	response, err := http.Post("http://"+e.addr+validatePath, "application/json", strings.NewReader(reviewOf("u1", 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "https://") {
		t.Errorf("status %d, body %q, error %v, want 400 that says what to do", response.StatusCode, body, err)
	}
}

func TestLimitsOnHandshakesAreChecked(t *testing.T) {
	for _, options := range []ServerOptions{{MaxHandshakes: -1}, {MaxComputingHandshakes: -1}} {
		options.Handler, options.TLS = newBridge(t, testOptions(allow)), &tls.Config{MinVersion: tls.VersionTLS12}
		if _, err := NewServer(options); err == nil {
			t.Errorf("a server with %+v was made", options)
		}
	}
}

// What the first request of a connection has waited for its handshake is taken off its time: its caller has counted it.
func TestTheFirstReviewOfAConnectionIsGivenWhatItsHandshakeHasLeft(t *testing.T) {
	var deadline time.Time
	b := newBridge(t, testOptions(func(ctx context.Context, r *review.Request) (review.Answer, error) {
		deadline, _ = ctx.Deadline()
		return allow(ctx, r)
	}))
	for _, test := range []struct{ handshake, first time.Duration }{
		{0, 8900 * time.Millisecond},
		{2 * time.Second, 6900 * time.Millisecond},
		{time.Minute, 4450 * time.Millisecond}, // half of it is left in any case
	} {
		gated := newGatedConn(nil, nil)
		gated.took = test.handshake
		ctx := withHandshake(t.Context(), tls.Server(gated, &tls.Config{MinVersion: tls.VersionTLS12}))
		for _, want := range []time.Duration{test.first, 8900 * time.Millisecond} {
			before := time.Now()
			request := httptest.NewRequestWithContext(ctx, http.MethodPost, validatePath+"?timeout=10s", strings.NewReader(reviewOf("u1", 0)))
			request.Header.Set("Content-Type", "application/json")
			request.TLS = trusted()
			b.ServeHTTP(httptest.NewRecorder(), request)
			if deadline.Before(before.Add(want)) || deadline.After(time.Now().Add(want)) {
				t.Errorf("after a handshake of %v the deadline is %v after the start, want %v", test.handshake, deadline.Sub(before), want)
			}
		}
	}
}
