package bridge

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// capable are the options of a bridge that accepts one capability, for the cluster prod-1.
func capable(reviewer reviewerFunc, accepted identity.Capability) Options {
	options := testOptions(reviewer)
	options.AuthorizeCapability = func(shown identity.Capability, cluster string) error {
		if shown.Sum() == accepted.Sum() && cluster == "prod-1" {
			return nil
		}
		return errors.New("not accepted")
	}
	return options
}

// shown is the path of a review with a capability.
func shown(cluster, capability, tail string) string {
	return "/v1/clusters/" + cluster + "/capability/" + capability + "/" + tail
}

func TestACapabilityIsEnough(t *testing.T) {
	good := identity.NewCapability()
	var entries []string
	e := serve(t, capable(func(ctx context.Context, r *review.Request) (review.Answer, error) {
		entries = append(entries, r.Entry.String()+"@"+r.Admission.GetCluster())
		return allow(ctx, r)
	}, good))
	conn := e.dialAs(t, "")
	for _, tail := range []string{"validate", "mutate", "reinvoke", "validate/fail-open", "mutate/fail-closed/10.AAAAAAAA"} {
		conn.send(t, post(shown("prod-1", good.Reveal(), tail), reviewOf("u1", 0)))
		response, body := conn.receive(t)
		if got := understand(t, response, body); !got.allowed || response.Close {
			t.Errorf("%s: %+v (the connection ends: %t)", tail, got, response.Close)
		}
	}
	if got, want := strings.Join(entries, ","), "@prod-1,@prod-1,@prod-1,fail-open@prod-1,fail-closed/10.AAAAAAAA@prod-1"; got != want {
		t.Errorf("entries and clusters %q, want %q", got, want)
	}
}

// A caller without a certificate cannot tell one cause of its refusal from another. The body is never sent: the answer does not wait
// for it.
func TestRefusedCapabilitiesLookAlike(t *testing.T) {
	good, other := identity.NewCapability(), identity.NewCapability().Reveal()
	e := serve(t, capable(func(context.Context, *review.Request) (review.Answer, error) {
		t.Error("a review is judged")
		return review.Answer{}, errors.New("judged")
	}, good))
	var first string
	for name, path := range map[string]string{
		"unknown":               shown("prod-1", other, "validate"),
		"of an unknown cluster": shown("prod-9", other, "mutate/a"),
		"of another cluster":    shown("prod-2", good.Reveal(), "validate"),
		"malformed":             shown("prod-1", "secret", "reinvoke"),
		"empty":                 shown("prod-1", "", "validate"),
		"cut short":             shown("prod-1", good.Reveal()[:len(good.Reveal())-1], "validate"),
		"too long":              shown("prod-1", good.Reveal()+"A", "validate"),
		"without its mark":      shown("prod-1", strings.TrimPrefix(good.Reveal(), identity.CapabilityMark), "validate"),
		"in another case":       shown("prod-1", strings.ToUpper(good.Reveal()), "validate"),
	} {
		conn := e.dialAs(t, "")
		conn.send(t, post(path, "", "Content-Length: 1000"))
		response, body := conn.receive(t)
		if got := understand(t, response, body); got.status != http.StatusUnauthorized || !response.Close {
			t.Errorf("%s: %+v (the connection ends: %t), want 401 and the end", name, got, response.Close)
		}
		if first == "" {
			first = string(body)
		}
		if string(body) != first {
			t.Errorf("%s: answer %s, want %s", name, body, first)
		}
	}
}

func TestCapabilitiesAreOffUnlessAllowed(t *testing.T) {
	e := serve(t, testOptions(allow))
	for _, as := range []string{"", "kube-apiserver"} {
		conn := e.dialAs(t, as)
		conn.send(t, post(shown("prod-1", identity.NewCapability().Reveal(), "validate"), reviewOf("u1", 0)))
		response, body := conn.receive(t)
		if got := understand(t, response, body); got.status != http.StatusUnauthorized || !strings.Contains(got.message, "--allow-capabilities") {
			t.Errorf("as %q: %+v, want 401 that names the flag", as, got)
		}
	}
}

// Direct callers have certificates, and capabilities are for API servers.
func TestACapabilityIsForTheStagesOfAnAPIServerAlone(t *testing.T) {
	good := identity.NewCapability()
	b := newBridge(t, capable(allow, good))
	for _, path := range []string{
		shown("prod-1", good.Reveal(), "admit"), shown("prod-1", good.Reveal(), "enforce"), shown("prod-1", good.Reveal(), "validate/a/b/c"),
		shown("prod-1", good.Reveal(), ""), shown("prod-1", good.Reveal(), "capability/"+good.Reveal()+"/validate"),
	} {
		w := httptest.NewRecorder()
		b.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(reviewOf("u1", 0))))
		if w.Code != http.StatusNotFound {
			t.Errorf("POST %s: status %d, want 404", path, w.Code)
		}
	}
}

// The capability decides, whatever certificate is beside it.
func TestACertificateBesideACapabilityDoesNotCount(t *testing.T) {
	good := identity.NewCapability()
	e := serve(t, capable(allow, good))
	for _, as := range []string{"stranger", "kube-apiserver"} {
		if got := ask(t, e.clientAs(t, as), e.url(shown("prod-1", good.Reveal(), "validate")), reviewOf("u1", 0)); !got.allowed {
			t.Errorf("as %s with a good capability: %+v", as, got)
		}
		if got := ask(t, e.clientAs(t, as), e.url(shown("prod-1", identity.NewCapability().Reveal(), "validate")), reviewOf("u1", 0)); got.status != http.StatusUnauthorized {
			t.Errorf("as %s with a bad capability: %+v, want 401", as, got)
		}
	}
}

// A connection that has shown a capability is no pass: each request shows its own.
func TestEachRequestShowsItsCapability(t *testing.T) {
	good := identity.NewCapability()
	e := serve(t, capable(allow, good))
	for _, path := range []string{validatePath, shown("prod-1", identity.NewCapability().Reveal(), "validate"), shown("prod-2", good.Reveal(), "validate")} {
		conn := e.dialAs(t, "")
		conn.send(t, post(shown("prod-1", good.Reveal(), "validate"), reviewOf("u1", 0)))
		response, body := conn.receive(t)
		if got := understand(t, response, body); !got.allowed {
			t.Fatalf("before: %+v", got)
		}
		conn.send(t, post(path, reviewOf("u2", 0)))
		response, body = conn.receive(t)
		if got := understand(t, response, body); got.status != http.StatusUnauthorized || response.Close != (path != validatePath) {
			t.Errorf("%s: %+v (the connection ends: %t), want 401", path, got, response.Close)
		}
	}
}

// A capability goes through every outcome, and nothing that the bridge writes holds it.
func TestNothingWrittenHoldsACapability(t *testing.T) {
	good := identity.NewCapability()
	bad := identity.NewCapability().Reveal()
	for name, reviewer := range map[string]reviewerFunc{
		"allowed": allow,
		"panics":  func(_ context.Context, r *review.Request) (review.Answer, error) { panic(fmt.Sprintf("%+v", r)) },
		"unjudged": func(context.Context, *review.Request) (review.Answer, error) {
			return review.Answer{}, errors.New("the configuration is stale")
		},
		"no answer": func(context.Context, *review.Request) (review.Answer, error) { return review.Answer{}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			var written bytes.Buffer
			recorder, registry := tracetest.NewSpanRecorder(), prometheus.NewPedanticRegistry()
			options := capable(reviewer, good)
			options.Logger = slog.New(slog.NewTextHandler(&written, &slog.HandlerOptions{Level: slog.LevelDebug}))
			options.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
			options.Registerer = registry
			b := newBridge(t, options)
			for _, token := range []string{good.Reveal(), bad} {
				for _, path := range []string{
					"validate", "mutate/a/10.A", "admit", "validate/a/b/c/d", "validate?timeout=nonsense", "nothing", "", "%zz",
				} {
					for body, method := range map[string]string{
						reviewOf("u1", 0): http.MethodPost, reviewOf("u1", 2*testLimit): http.MethodPost, "{": http.MethodPost, "": http.MethodGet,
					} {
						w := httptest.NewRecorder()
						request := httptest.NewRequestWithContext(t.Context(), method, "/", strings.NewReader(body))
						request.RequestURI = shown("prod-1", token, path)
						request.URL.Path, request.URL.RawQuery, _ = strings.Cut(request.RequestURI, "?")
						request.Header.Set("Content-Type", "application/json")
						b.ServeHTTP(w, request)
						fmt.Fprintln(&written, w.Code, w.Header(), w.Body)
					}
				}
			}
			for _, span := range recorder.Ended() {
				fmt.Fprintln(&written, span.Name(), span.Attributes(), span.Status(), span.Events())
			}
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, family := range families {
				if _, err := expfmt.MetricFamilyToText(&written, family); err != nil {
					t.Fatal(err)
				}
			}
			for _, token := range []string{good.Reveal(), bad, good.Reveal()[len(identity.CapabilityMark):]} {
				if strings.Contains(written.String(), token) {
					t.Errorf("a capability was written:\n%s", written.String())
				}
			}
			if len(recorder.Ended()) == 0 || !strings.Contains(written.String(), "review answered") {
				t.Error("no span or no line was written")
			}
		})
	}
}

// anonymous are connections without TLS below them that a test can look at.
func anonymous(t *testing.T) (conn *tls.Conn, closed func() bool) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { _ = errors.Join(near.Close(), far.Close()) })
	return tls.Server(far, &tls.Config{MinVersion: tls.VersionTLS12}), func() bool {
		return errors.Is(far.SetDeadline(time.Time{}), io.ErrClosedPipe)
	}
}

func TestConnectionsThatHaveProvedNothingAreBounded(t *testing.T) {
	s := newStrangers()
	conns, closed := make([]*tls.Conn, maxUnproven+2), make([]func() bool, maxUnproven+2)
	for i := range conns {
		conns[i], closed[i] = anonymous(t)
	}
	for _, conn := range conns[:maxUnproven] {
		s.add(conn)
	}
	for i := range conns[:maxUnproven] {
		if closed[i]() {
			t.Fatalf("connection %d of %d was closed", i, maxUnproven)
		}
	}
	if !s.prove(conns[0], "prod-1") {
		t.Error("a connection cannot prove itself")
	}
	s.add(conns[maxUnproven])
	if closed[0]() || closed[1]() {
		t.Error("a connection was closed although one has proved itself")
	}
	s.add(conns[maxUnproven+1])
	if closed[0]() || !closed[1]() || closed[2]() || closed[maxUnproven+1]() {
		t.Error("not the oldest one was closed")
	}
	for _, conn := range conns {
		s.changed(conn, http.StateActive)
		s.changed(conn, http.StateClosed)
		s.changed(conn, http.StateClosed)
	}
	if len(s.at)+s.unproven.Len()+len(s.proved)+len(s.clusters) != 0 {
		t.Errorf("connections are left: %+v", s)
	}
}

func TestConnectionsOfEachClusterAreBounded(t *testing.T) {
	s := newStrangers()
	var last *tls.Conn
	for i := range maxProved {
		last = tls.Server(nil, &tls.Config{MinVersion: tls.VersionTLS12})
		s.add(last)
		for range 2 { // the second time changes nothing
			if !s.prove(last, "prod-1") {
				t.Fatalf("connection %d of %d is refused", i, maxProved)
			}
		}
	}
	more, others := tls.Server(nil, &tls.Config{MinVersion: tls.VersionTLS12}), tls.Server(nil, &tls.Config{MinVersion: tls.VersionTLS12})
	s.add(more)
	s.add(others)
	if s.prove(more, "prod-1") || !s.prove(others, "prod-2") || !s.prove(last, "prod-1") {
		t.Error("one more is accepted, or another cluster is refused, or a connection that has proved itself")
	}
	s.changed(last, http.StateClosed)
	if !s.prove(more, "prod-1") {
		t.Error("the place of a closed connection is not free")
	}
}

func TestAClusterWithTooManyConnectionsTriesAgain(t *testing.T) {
	good := identity.NewCapability()
	e := serve(t, capable(allow, good))
	e.server.strangers.mu.Lock()
	e.server.strangers.clusters["prod-1"] = maxProved
	e.server.strangers.mu.Unlock()
	conn := e.dialAs(t, "")
	conn.send(t, post(shown("prod-1", good.Reveal(), "validate"), "", "Content-Length: 1000"))
	response, body := conn.receive(t)
	if got := understand(t, response, body); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") != "1" || !response.Close {
		t.Errorf("%+v (the connection ends: %t), want 429 with Retry-After, and the end", got, response.Close)
	}
}

// unprovenOf are the connections that have proved nothing.
func unprovenOf(s *strangers) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unproven.Len()
}

func TestAConnectionProvesItselfByACertificateOrACapability(t *testing.T) {
	good := identity.NewCapability()
	e := serve(t, capable(allow, good))
	s := e.server.strangers
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP/%d", version), func(t *testing.T) {
			clientAs := func(identity string) *http.Client { return only(t, e.clientAs(t, identity), version) }
			if got := ask(t, clientAs("kube-apiserver"), e.url(validatePath), reviewOf("u1", 0)); !got.allowed || unprovenOf(s) != 0 {
				t.Errorf("with a certificate: %+v, %d connections have proved nothing", got, unprovenOf(s))
			}
			managed := clientAs("")
			for range 3 {
				got := ask(t, managed, e.url(shown("prod-1", good.Reveal(), "validate")), reviewOf("u1", 0))
				if !got.allowed || got.header.Get("Connection") != "" || unprovenOf(s) != 0 {
					t.Errorf("with a capability: %+v, %d connections have proved nothing", got, unprovenOf(s))
				}
			}
			if got := ask(t, clientAs(""), e.url(validatePath), reviewOf("u1", 0)); got.status != http.StatusUnauthorized {
				t.Errorf("with neither: %+v", got)
			}
			eventually(t, "the connection with neither is closed", func() bool { return unprovenOf(s) == 0 })
		})
	}
}

func TestAConnectionThatIsRefusedTooOftenIsCut(t *testing.T) {
	for refused, cut := range map[int]bool{maxRefused: false, maxRefused + 1: true} {
		conn, closed := anonymous(t)
		c := &connection{channel: identity.Peer{}, secure: conn, strangers: newStrangers()}
		b := newBridge(t, testOptions(allow))
		for range refused {
			ctx := context.WithValue(t.Context(), connectionKey{}, c)
			w := httptest.NewRecorder()
			admitter{b}.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil))
			if w.Header().Get("Connection") != "close" {
				t.Error("the caller is not asked to close")
			}
		}
		if closed() != cut {
			t.Errorf("after %d refusals the connection is cut: %t, want %t", refused, !cut, cut)
		}
	}
}

// While the bridge drains, a caller with a capability is asked to go elsewhere as others are.
func TestACapabilityDoesNotKeepAConnectionThatDrains(t *testing.T) {
	good := identity.NewCapability()
	e := serve(t, capable(allow, good))
	conn := e.dialAs(t, "")
	e.Drain()
	conn.send(t, post(shown("prod-1", good.Reveal(), "validate"), reviewOf("u1", 0)))
	response, body := conn.receive(t)
	if got := understand(t, response, body); !got.allowed || !response.Close {
		t.Errorf("%+v (the connection ends: %t)", got, response.Close)
	}
}
