package outbound

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	k8sv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/bridge/jsonreview"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of the tests: it ends a hang, and is never the time that a test takes.
const patience = 20 * time.Second

// webhook is an HTTPS server that answers reviews as a test says.
type webhook struct {
	*httptest.Server
	ca []byte

	mu          sync.Mutex
	connections int // that were ever opened
}

// serve starts a webhook. configure may change the server before it starts.
func serve(t testing.TB, handler http.HandlerFunc, configure ...func(*httptest.Server)) *webhook {
	t.Helper()
	w := &webhook{Server: httptest.NewUnstartedServer(handler)}
	w.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // callers that give up are part of the tests
	w.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.connections++
		}
	}
	for _, f := range configure {
		f(w.Server)
	}
	w.StartTLS()
	t.Cleanup(func() { w.stop(t) })
	w.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw})
	return w
}

// opened is how many connections the webhook has had.
func (w *webhook) opened() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.connections
}

// hook is a validating hook at the webhook.
func (w *webhook) hook(path string) *match.Hook {
	url := w.URL + path
	return &match.Hook{
		ID:             match.HookID{Stage: admissionv1.Stage_STAGE_VALIDATE, Configuration: "c", Name: "hook.example.com"},
		ClientConfig:   admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: w.ca},
		ReviewVersions: []string{"v1"},
	}
}

// service makes h call its webhook as a service.
func service(h *match.Hook, namespace, name string) *match.Hook {
	out := *h
	out.ClientConfig.URL = nil
	out.ClientConfig.Service = &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: name}
	return &out
}

// mutating makes h a mutating hook.
func mutating(h *match.Hook) *match.Hook {
	out := *h
	out.ID.Stage = admissionv1.Stage_STAGE_MUTATE
	return &out
}

// taking makes h take other versions of AdmissionReview.
func taking(h *match.Hook, versions ...string) *match.Hook {
	out := *h
	out.ReviewVersions = versions
	return &out
}

// readReview reads the AdmissionReview of a request; nil if the caller has given up before it was sent.
func readReview(t testing.TB, r *http.Request) *k8sv1.AdmissionReview {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	if err != nil {
		t.Errorf("reading the review: %v", err)
		return nil
	}
	var got k8sv1.AdmissionReview
	if err := json.Unmarshal(body, &got); err != nil || got.Request == nil {
		t.Errorf("no review (%v): %s", err, body)
		return nil
	}
	return &got
}

// answering is a webhook that answers each review by respond.
func answering(t testing.TB, respond func(*k8sv1.AdmissionRequest) *k8sv1.AdmissionResponse) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		got := readReview(t, r)
		if got == nil {
			return
		}
		answer := k8sv1.AdmissionReview{TypeMeta: got.TypeMeta, Response: respond(got.Request)}
		if answer.Response != nil && answer.Response.UID == "" {
			answer.Response.UID = got.Request.UID
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}
}

// allowing is a webhook that allows everything.
func allowing(t testing.TB) http.HandlerFunc {
	return answering(t, func(*k8sv1.AdmissionRequest) *k8sv1.AdmissionResponse {
		return &k8sv1.AdmissionResponse{Allowed: true}
	})
}

// saying is a webhook that answers with bytes, whatever it is asked. %UID% in them is the uid of the review.
func saying(t testing.TB, status int, header http.Header, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		got := readReview(t, r)
		if got == nil {
			return
		}
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, withUID(body, string(got.Request.UID)))
	}
}

// stop closes the webhook. It does not wait for ever: a test that fails may have left a handler that nothing releases.
func (w *webhook) stop(t testing.TB) {
	t.Helper()
	closed := make(chan struct{})
	go func() { w.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Error("a handler of the webhook has not ended")
	}
}

// newClient makes a client that is closed with the test, may call webhooks of this machine, and does not look for proxies in the environment.
func newClient(t testing.TB, o Options) *Client {
	t.Helper()
	if o.proxy == nil {
		o.proxy = http.ProxyURL(nil)
	}
	if o.Networks == nil {
		o.Networks = Loopback()
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

// createWidget is a review of a custom resource.
func createWidget() *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		Uid: "inbound", Cluster: "prod-1",
		Kind:            &admissionv1.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
		Resource:        &admissionv1.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
		RequestKind:     &admissionv1.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
		RequestResource: &admissionv1.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
		Name:            "w", Namespace: "default", Operation: "CREATE",
		UserInfo: &admissionv1.UserInfo{Username: "jane"},
		Object:   &admissionv1.Object{Raw: []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1}}`)},
		Options:  &admissionv1.Object{Raw: []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions"}`)},
		DryRun:   new(bool),
	}
}

// batch is a review for hooks that have patience.
func batch(hooks ...*match.Hook) *review.CallSet {
	b := &review.CallSet{Request: createWidget()}
	for _, h := range hooks {
		b.Calls = append(b.Calls, review.Call{Hook: h, Deadline: time.Now().Add(patience)})
	}
	return b
}

// flight is a call set that was started.
type flight struct {
	t       testing.TB
	cancel  func(int)
	results chan delivered
	left    int
}

type delivered struct {
	i int
	r review.Result
}

func start(t testing.TB, c *Client, b *review.CallSet) *flight {
	t.Helper()
	f := &flight{t: t, results: make(chan delivered, 2*len(b.Calls)), left: len(b.Calls)}
	f.cancel = c.Start(t.Context(), b, func(i int, r review.Result) { f.results <- delivered{i, r} })
	return f
}

// next is the next result, whosever it is.
func (f *flight) next() delivered {
	f.t.Helper()
	select {
	case d := <-f.results:
		f.left--
		return d
	case <-time.After(patience):
		f.t.Fatal("no result")
		return delivered{}
	}
}

// wait is all results, by call. Each comes once.
func (f *flight) wait() []review.Result {
	f.t.Helper()
	out := make([]review.Result, cap(f.results)/2)
	for f.left > 0 {
		d := f.next()
		if out[d.i].Verdict != nil || out[d.i].Failure != nil {
			f.t.Errorf("a second result of call %d: %v", d.i, d.r)
		}
		out[d.i] = d.r
	}
	return out
}

// ask calls hooks and waits.
func ask(t testing.TB, c *Client, hooks ...*match.Hook) []review.Result {
	t.Helper()
	return start(t, c, batch(hooks...)).wait()
}

// kindOf is the kind of a failure, "denied" or "allowed".
func kindOf(r review.Result) string {
	switch {
	case r.Failure != nil:
		return r.Failure.Kind.String()
	case r.Verdict.GetAllowed():
		return "allowed"
	}
	return "denied"
}

// want checks how calls ended.
func want(t testing.TB, got []review.Result, kinds ...string) {
	t.Helper()
	for i, r := range got {
		if kind := kindOf(r); kind != kinds[i] {
			t.Errorf("call %d: %s (%v), want %s", i, kind, r.Failure, kinds[i])
		}
		if (r.Verdict == nil) == (r.Failure == nil) {
			t.Errorf("call %d: verdict %v and failure %v", i, r.Verdict, r.Failure)
		}
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

// checkTold checks the time that a webhook was told: no more than its caller had at first, and no less than is left now.
func checkTold(t testing.TB, query string, had time.Duration, deadline time.Time) {
	t.Helper()
	told, err := time.ParseDuration(strings.TrimPrefix(query, "timeout="))
	if left := jsonreview.Timeout(time.Until(deadline)); err != nil || told > jsonreview.Timeout(had) || told < left {
		t.Errorf("told %q, want %v or, once time has passed, no less than %v", query, jsonreview.Timeout(had), left)
	}
}

// withUID puts a uid where a body says so.
func withUID(body, uid string) string { return strings.ReplaceAll(body, "%UID%", uid) }
