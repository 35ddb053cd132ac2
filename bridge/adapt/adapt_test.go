package adapt_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	k8sadmission "k8s.io/api/admission/v1"

	"github.com/portcullis-mesh/portcullis/bridge/adapt"
	"github.com/portcullis-mesh/portcullis/bridge/adapt/remote"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
)

const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"},"spec":{"containers":[]}}`

func clientTLS(s *httptest.Server) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
}

// observer keeps the calls that it observes.
type observer struct {
	mu    sync.Mutex
	began int
	calls []adapt.Call
}

func (o *observer) Began() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.began++
}

func (o *observer) Ended(c adapt.Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls = append(o.calls, c)
}

// outcomes are the outcomes so far, in order.
func (o *observer) outcomes() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]string, len(o.calls))
	for i, c := range o.calls {
		all[i] = c.Outcome.String()
	}
	return strings.Join(all, " ")
}

// serve starts a host with one validating hook "h".
func serve(t *testing.T, handler hostsdk.Handler) *hosttest.Dispatcher {
	t.Helper()
	host, err := hostsdk.New(hostsdk.Options{Name: "adapted", Logger: slog.New(slog.DiscardHandler)}, hostsdk.Validate("h", handler))
	if err != nil {
		t.Fatal(err)
	}
	return hosttest.Start(t, host)
}

// forward is a host before a webhook, with the webhook's connections.
func forward(t *testing.T, address string, o adapt.Options) *hosttest.Dispatcher {
	t.Helper()
	at, err := remote.ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	w, err := remote.New(remote.Options{Address: at, MaxConnections: 4})
	if err != nil {
		t.Fatal(err)
	}
	d := serve(t, adapt.Forward(w, &at.URL, o))
	t.Cleanup(w.CloseIdleConnections)
	return d
}

func TestAWebhookThatIsGoneHasDoneNothing(t *testing.T) {
	seen := &observer{}
	d := forward(t, "unix://"+filepath.Join(t.TempDir(), "none")+":/", adapt.Options{Observer: seen})
	v, err := d.Ask(t.Context(), "h", hosttest.Create(pod))
	if err != nil || !strings.Contains(v.GetRefused().GetReason(), "no such file") {
		t.Errorf("verdict %v, %v", v, err)
	}
	if got := seen.outcomes(); got != "unreachable" {
		t.Errorf("observed %q", got)
	}
}

// TestAReviewThatIsLostWithAKeptConnectionIsSentOnceMore where the webhook has no side effects, as the mesh sends it.
func TestAReviewThatIsLostWithAKeptConnectionIsSentOnceMore(t *testing.T) {
	for name, test := range map[string]struct {
		effects  string
		dryRun   bool
		lost     []int32  // requests, from 1, that are read and not answered
		outcomes []string // of two calls
		seen     int32
	}{
		"no side effects":            {"None", false, []int32{2}, []string{"allowed", "allowed"}, 3},
		"none in a dry run":          {"NoneOnDryRun", true, []int32{2}, []string{"allowed", "allowed"}, 3},
		"some but in a dry run":      {"NoneOnDryRun", false, []int32{2}, []string{"allowed", "lost"}, 2},
		"not known":                  {"", false, []int32{2}, []string{"allowed", "lost"}, 2},
		"a new connection":           {"None", false, []int32{1}, []string{"lost", "allowed"}, 2},
		"the second connection too":  {"None", false, []int32{2, 3}, []string{"allowed", "lost"}, 3},
		"both calls, of which first": {"None", false, []int32{1, 2}, []string{"lost", "lost"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int32
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var review k8sadmission.AdmissionReview
				if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
					t.Error(err)
				}
				if slices.Contains(test.lost, n.Add(1)) {
					panic(http.ErrAbortHandler)
				}
				review.Response = &k8sadmission.AdmissionResponse{UID: review.Request.UID, Allowed: true}
				_ = json.NewEncoder(w).Encode(&review)
			}))
			t.Cleanup(s.Close)
			seen := &observer{}
			d := forward(t, s.URL, adapt.Options{Observer: seen, SideEffects: test.effects})
			for range 2 {
				r := hosttest.Create(pod)
				r.DryRun = &test.dryRun
				if _, err := d.Ask(t.Context(), "h", r); err != nil {
					t.Fatal(err)
				}
			}
			if want := strings.Join(test.outcomes, " "); seen.outcomes() != want || n.Load() != test.seen {
				t.Errorf("%s after %d requests, want %s after %d", seen.outcomes(), n.Load(), want, test.seen)
			}
		})
	}
}

// TestAConnectionThatWasKeptMayBeGone: nothing was written to it, and the next one cannot be had.
func TestAConnectionThatWasKeptMayBeGone(t *testing.T) {
	seen := &observer{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) }))
	d := forward(t, s.URL, adapt.Options{Observer: seen})
	if v, err := d.Ask(t.Context(), "h", hosttest.Create(pod)); err != nil || v.GetError() == nil {
		t.Errorf("verdict %v, %v", v, err)
	}
	s.CloseClientConnections()
	s.Close()
	deadline := time.Now().Add(patience)
	for !strings.HasSuffix(seen.outcomes(), "unreachable") && time.Now().Before(deadline) { // It may be lost once, if the end is not known yet.
		v, err := d.Ask(t.Context(), "h", hosttest.Create(pod))
		if err != nil || v.GetResponse() != nil {
			t.Fatalf("verdict %v, %v", v, err)
		}
		if strings.HasSuffix(seen.outcomes(), "unreachable") && v.GetRefused() == nil {
			t.Errorf("verdict %v, want it not started", v)
		}
	}
}

// TestAWebhookLearnsThatItsCallIsOver: by the deadline, and by a cancellation.
func TestAWebhookLearnsThatItsCallIsOver(t *testing.T) {
	for name, road := range map[string]func(t *testing.T, h http.Handler, o adapt.Options) *hosttest.Dispatcher{
		"in this process": func(t *testing.T, h http.Handler, o adapt.Options) *hosttest.Dispatcher {
			return serve(t, adapt.Handler(h, o))
		},
		"in another one": func(t *testing.T, h http.Handler, o adapt.Options) *hosttest.Dispatcher {
			s := httptest.NewServer(h)
			t.Cleanup(s.Close)
			return forward(t, s.URL, o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			began, ended, seen := make(chan string, 2), make(chan struct{}, 2), &observer{}
			d := road(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body) // net/http watches the connection from the end of the body on
				began <- r.URL.RawQuery
				<-r.Context().Done()
				ended <- struct{}{}
			}), adapt.Options{Observer: seen})
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if v, err := d.Ask(ctx, "h", hosttest.Create(pod)); err != nil || v.GetCancelled() == nil {
				t.Errorf("verdict %v, %v", v, err)
			}
			<-ended
			if got := <-began; got != "timeout=1s" {
				t.Errorf("told %s", got)
			}
			ctx, cancel = context.WithCancel(t.Context())
			go func() { // Waited for by the call, which the cancellation ends.
				<-began
				cancel()
			}()
			if v, err := d.Ask(ctx, "h", hosttest.Create(pod)); err != nil || v.GetCancelled() == nil {
				t.Errorf("verdict %v, %v", v, err)
			}
			<-ended
			if got := seen.outcomes(); got != "timeout cancelled" || seen.began != 2 {
				t.Errorf("observed %q of %d", got, seen.began)
			}
		})
	}
}

func TestAHandlerThatPanicsCostsItsOwnCall(t *testing.T) {
	seen := &observer{}
	d := serve(t, adapt.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		panic("no")
	}), adapt.Options{Observer: seen}))
	v, err := d.Ask(t.Context(), "h", hosttest.Create(pod))
	if err != nil || !v.GetError().GetPanicked() {
		t.Errorf("verdict %v, %v", v, err)
	}
	if got := seen.outcomes(); got != "bad_answer" {
		t.Errorf("observed %q", got)
	}
}

// TestADenialInAnAnswerThatIsCutOffStays, as for the mesh (docs/deviations.md, D1).
func TestADenialInAnAnswerThatIsCutOffStays(t *testing.T) {
	d := serve(t, adapt.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"response":{"allowed":false,"status":{"message":"no"}},`)
	}), adapt.Options{ReviewVersions: []string{"v1beta1"}}))
	if got := d.Review(t.Context(), "h", hosttest.Create(pod)); got.Allowed || got.Message != "no" {
		t.Errorf("verdict %v", got)
	}
}

func TestAHandlerIsAskedAsAServerIs(t *testing.T) {
	d := serve(t, adapt.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		if r.Method != http.MethodPost || !strings.HasPrefix(r.RequestURI, "/validate?timeout=") || r.ContentLength <= 0 || r.Host == "" || r.RemoteAddr == "" {
			t.Errorf("asked %s %s, %d bytes, by %q of %q", r.Method, r.RequestURI, r.ContentLength, r.RemoteAddr, r.Host)
		}
		w.WriteHeader(http.StatusNoContent)
		if _, err := io.WriteString(w, "x"); err == nil {
			t.Error("a body behind 204")
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusOK)
	}), adapt.Options{Path: "/validate"}))
	v, err := d.Ask(t.Context(), "h", hosttest.Create(pod))
	if err != nil || !strings.Contains(v.GetError().GetMessage(), "the answer is empty") {
		t.Errorf("verdict %v, %v", v, err)
	}
}

func TestTheWebhookIsPartOfTheTrace(t *testing.T) {
	parents := make(chan string, 1)
	handler := adapt.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { parents <- r.Header.Get("Traceparent") }), adapt.Options{})
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: 1})
	r := hostsdk.NewRequest(hosttest.Create(pod))
	r.Stage = hostsdk.StageValidate
	if _, err := handler(trace.ContextWithSpanContext(t.Context(), span), r); err == nil {
		t.Error("no answer is a verdict")
	}
	if got := <-parents; got != "00-01000000000000000000000000000000-0200000000000000-01" {
		t.Errorf("traceparent %q", got)
	}
}

func TestWhatCannotBeAskedIsNotStarted(t *testing.T) {
	never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("called") })
	request := hosttest.Create(pod)
	d := serve(t, adapt.Handler(never, adapt.Options{ReviewVersions: []string{"v2"}}))
	if v, err := d.Ask(t.Context(), "h", request); err != nil || !strings.Contains(v.GetRefused().GetReason(), `["v2"]`) {
		t.Errorf("verdict %v, %v", v, err)
	}
	request.Object.ContentType = "application/vnd.kubernetes.protobuf"
	d = serve(t, adapt.Forward(http.DefaultTransport, &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, adapt.Options{}))
	if v, err := d.Ask(t.Context(), "h", request); err != nil || !strings.Contains(v.GetRefused().GetReason(), "protobuf") {
		t.Errorf("verdict %v, %v", v, err)
	}
}

// TestARetryThatTheWebhookAsksForEndsWithTheCall: waiting for it is part of the call.
func TestARetryThatTheWebhookAsksForEndsWithTheCall(t *testing.T) {
	seen, asked := &observer{}, make(chan struct{}, 1)
	d := serve(t, adapt.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "5")
		w.WriteHeader(http.StatusServiceUnavailable)
		asked <- struct{}{}
	}), adapt.Options{Observer: seen}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // Waited for by the call, which the cancellation ends.
		<-asked
		cancel()
	}()
	if v, err := d.Ask(ctx, "h", hosttest.Create(pod)); err != nil || v.GetCancelled() == nil {
		t.Errorf("verdict %v, %v", v, err)
	}
	if got := seen.outcomes(); got != "cancelled" {
		t.Errorf("observed %q", got)
	}
}
