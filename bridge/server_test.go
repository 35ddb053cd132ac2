package bridge

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestDrainAsksCallersToGoElsewhere(t *testing.T) {
	e := serve(t, testOptions(allow))
	conn := e.dial(t)
	conn.send(t, post(validatePath, reviewOf("u1", 0)))
	if response, _ := conn.receive(t); response.Close || !e.Ready() {
		t.Fatalf("before the drain: closes %t, ready %t", response.Close, e.Ready())
	}
	e.Drain()
	if e.Ready() {
		t.Error("still ready")
	}
	conn.send(t, post(validatePath, reviewOf("u2", 0)))
	response, body := conn.receive(t)
	if got := understand(t, response, body); !got.allowed || !response.Close {
		t.Errorf("a review during the drain: %+v, closes %t, want it judged and the connection closed", got, response.Close)
	}
	refused := e.dial(t)
	refused.send(t, post("/nowhere", ""))
	if response, _ := refused.receive(t); !response.Close {
		t.Error("a refusal during the drain keeps the connection")
	}
}

func TestDrainOverHTTP2OpensTheNextConnection(t *testing.T) {
	e := serve(t, testOptions(allow))
	client := e.client2(t)
	reused := func() bool {
		var reused bool
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
		})
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url(validatePath), strings.NewReader(reviewOf("u1", 0)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.ProtoMajor != 2 || response.StatusCode != http.StatusOK {
			t.Fatalf("answer %s %s", response.Proto, response.Status)
		}
		return reused
	}
	reused()
	if !reused() {
		t.Fatal("the connection is not kept")
	}
	e.Drain()
	eventually(t, "a new connection is opened", func() bool { return !reused() })
}

func TestStopWaitsForReviewsInFlight(t *testing.T) {
	g := newGate()
	e := serve(t, testOptions(g.review))
	client := e.client(t)
	answers := make(chan answered, 1)
	go func() { answers <- ask(t, client, e.url(validatePath), reviewOf("u1", 0)) }()
	<-g.entered

	stopped := make(chan error, 1)
	go func() { stopped <- e.stop() }()
	eventually(t, "not ready", func() bool { return !e.Ready() })
	eventually(t, "the listener is closed", func() bool {
		conn, err := net.Dial("tcp", e.addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	close(g.open)
	if got := <-answers; !got.allowed {
		t.Errorf("the review in flight: %+v, want it judged", got)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Serve() = %v, want nil after a clean stop", err)
	}
}

func TestConnectionsAreTakenWhileTheStopPropagates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := serveInBubble(t, newBridge(t, testOptions(allow)), ServerOptions{PropagationDelay: time.Second})
		stopped := make(chan error, 1)
		go func() { stopped <- e.stop() }()
		synctest.Wait()
		if e.Ready() {
			t.Error("still ready")
		}
		if got := ask(t, e.client(t), e.url(validatePath), reviewOf("u1", 0)); !got.allowed {
			t.Errorf("a new caller: %+v, want its review judged", got)
		}
		if err := <-stopped; err != nil {
			t.Errorf("Serve() = %v", err)
		}
	})
}

// TestConnectionsWithoutARequestDoNotHoldUpTheStop: API servers dial ahead of need, and net/http waits 5 s for each such connection.
func TestConnectionsWithoutARequestDoNotHoldUpTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := serveInBubble(t, newBridge(t, testOptions(allow)), ServerOptions{StopTimeout: 3 * time.Second})
		e.dial(t)
		synctest.Wait()
		if err := e.stop(); err != nil {
			t.Errorf("Serve() = %v, want nil", err)
		}
	})
}

func TestStopIsBounded(t *testing.T) {
	g := newGate()
	options := ServerOptions{StopTimeout: 50 * time.Millisecond}
	e := serveWith(t, newBridge(t, testOptions(g.review)), tls.VerifyClientCertIfGiven, options)
	conn := e.dial(t)
	conn.send(t, post(validatePath, reviewOf("u1", 0)))
	<-g.entered
	if err := e.stop(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "still in flight") {
		t.Errorf("Serve() = %v, want it to say that a review was cut off", err)
	}
	close(g.open)
	eventually(t, "the review that was cut off ends", func() bool { return e.options.Memory.InUse() == 0 })
}

func TestServeReportsALostListener(t *testing.T) {
	b := newBridge(t, testOptions(allow))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	server, err := NewServer(ServerOptions{Handler: b, TLS: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: make([]tls.Certificate, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Serve(t.Context(), listener); err == nil || !strings.Contains(err.Error(), "serving") {
		t.Errorf("Serve() = %v, want the listener's error", err)
	}
}

// Connections that do nothing are not kept: in the handshake, before the headers, and between requests.
func TestIdleConnectionsAreClosed(t *testing.T) {
	for name, idle := range map[string]func(t *testing.T, e *edge) net.Conn{
		"in the handshake": func(t *testing.T, e *edge) net.Conn {
			conn, err := e.connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			return conn
		},
		"before the headers end": func(t *testing.T, e *edge) net.Conn {
			conn := e.dial(t)
			conn.send(t, "POST "+validatePath+" HTTP/1.1\r\nHost: br")
			return conn
		},
		"between requests": func(t *testing.T, e *edge) net.Conn {
			conn := e.dial(t)
			conn.send(t, post(validatePath, reviewOf("u1", 0)))
			conn.receive(t)
			return conn
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := idle(t, serveInBubble(t, newBridge(t, testOptions(allow)), ServerOptions{}))
				if err := conn.SetReadDeadline(time.Now().Add(idleTimeout + time.Second)); err != nil {
					t.Fatal(err)
				}
				var late net.Error
				if n, err := conn.Read(make([]byte, 1)); n != 0 || errors.As(err, &late) && late.Timeout() {
					t.Errorf("read %d bytes, error %v, want the connection closed", n, err)
				}
			})
		})
	}
}

func TestHeadersAreBounded(t *testing.T) {
	const slack = 4096 // net/http reads that much more before it counts
	e := serve(t, testOptions(allow))
	for size, want := range map[int]int{
		maxHeaderBytes / 2:       http.StatusOK,
		maxHeaderBytes + 2*slack: http.StatusRequestHeaderFieldsTooLarge,
	} {
		conn := e.dial(t)
		conn.send(t, post(validatePath, reviewOf("u1", 0), "X-Padding: "+strings.Repeat("x", size)))
		if response, _ := conn.receive(t); response.StatusCode != want {
			t.Errorf("headers of %d bytes: status %d, want %d", size, response.StatusCode, want)
		}
	}
}

// Connections without TLS or HTTP are logged at debug level alone.
func TestBadConnectionsAreLoggedAtDebug(t *testing.T) {
	var log lockedBuffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	e := serveWith(t, newBridge(t, testOptions(allow)), tls.VerifyClientCertIfGiven, ServerOptions{Logger: logger})
	conn, err := net.Dial("tcp", e.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the handshake is logged", func() bool { return strings.Contains(log.String(), "TLS handshake error") })
	if strings.Contains(log.String(), "level=INFO") || strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("logged above debug:\n%s", log.String())
	}
}

// lockedBuffer is a buffer that a test reads while a server writes.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

func TestServerOptionsAreChecked(t *testing.T) {
	if _, err := NewServer(ServerOptions{TLS: &tls.Config{MinVersion: tls.VersionTLS12}}); err == nil {
		t.Error("a server without handler was made")
	}
	if _, err := NewServer(ServerOptions{Handler: newBridge(t, testOptions(allow))}); err == nil {
		t.Error("a server without TLS was made")
	}
}

// A replica is replaced while reviews flow: callers are led to the other one by readiness and closed connections, and
// every review is answered.
func TestRollingAReplicaLosesNoReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, pause = 4, 10 * time.Millisecond
		options := ServerOptions{PropagationDelay: 100 * time.Millisecond}
		first := serveInBubble(t, newBridge(t, testOptions(allow)), options)
		second := serveInBubble(t, newBridge(t, testOptions(allow)), options)
		ctx, cancel := context.WithCancel(t.Context())
		var answers, led atomic.Int32
		var load sync.WaitGroup
		for range callers {
			config := first.clientTLS(t, first.authority, "kube-apiserver")
			other := second.clientTLS(t, second.authority, "kube-apiserver")
			transport := &http.Transport{DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				if first.Ready() { // as a load balancer sees it
					return first.secure(ctx, config)
				}
				led.Add(1)
				return second.secure(ctx, other)
			}}
			t.Cleanup(transport.CloseIdleConnections)
			client := &http.Client{Transport: transport, Timeout: patience}
			load.Go(func() {
				for ; ctx.Err() == nil; <-time.After(pause) {
					if got := ask(t, client, "https://127.0.0.1"+validatePath, reviewOf("u1", 0)); !got.allowed {
						t.Errorf("answer = %+v, want allowed", got)
					}
					answers.Add(1)
				}
			})
		}
		<-time.After(5 * pause)
		stopped := make(chan error, 1)
		go func() { stopped <- first.stop() }()
		<-time.After(5 * pause)
		if led.Load() != callers { // by the answers that close its connection, long before the listener is closed
			t.Errorf("%d of %d callers were led to the other replica", led.Load(), callers)
		}
		if err := <-stopped; err != nil {
			t.Errorf("Serve() = %v", err)
		}
		<-time.After(5 * pause)
		cancel()
		load.Wait()
		if answers.Load() < 15*callers || led.Load() != callers {
			t.Errorf("%d answers by %d connections to the other replica", answers.Load(), led.Load())
		}
	})
}
