package oracle

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portcullis-mesh/portcullis/internal/clock"
)

// Play is every scripted hook of a server: it answers one attempt at a call of the hook at a path. ctx ends when the caller
// gives up, and knows the RequestInfo. One is played at a time.
type Play func(ctx context.Context, path string, request *admissionv1.AdmissionRequest) Answer

// Webhooks is an HTTPS server with scripted hooks, each at a path of its own.
type Webhooks struct {
	play Play
	http *httptest.Server
	ca   []byte

	mu      sync.Mutex
	calls   map[types.UID]*progress
	running int        // attempts that have not ended
	ended   *sync.Cond // one has
}

// progress is how far a call is, which the hook may want to see again.
type progress struct {
	attempts int
	last     Answer
}

// NewWebhooks starts a server. It ends with the test.
func NewWebhooks(t testing.TB, play Play) *Webhooks {
	t.Helper()
	s := &Webhooks{play: play, calls: map[types.UID]*progress{}}
	s.ended = sync.NewCond(&s.mu)
	s.http = httptest.NewUnstartedServer(s)
	s.http.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // callers that give up are part of the script
	s.http.StartTLS()
	t.Cleanup(s.http.Close)
	s.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	return s
}

// ClientConfig leads to the hook at a path.
func (s *Webhooks) ClientConfig(path string) admissionregistrationv1.WebhookClientConfig {
	url := s.http.URL + "/" + path
	return admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: s.ca}
}

// Wait returns when no attempt is under way. Callers that have given up are not waited for long: their hooks end.
func (s *Webhooks) Wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.running > 0 {
		s.ended.Wait()
	}
}

func (s *Webhooks) enter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
}

func (s *Webhooks) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.ended.Broadcast()
}

// answer asks the script of a hook. A request that net/http sends again, since its connection went away before the answer,
// has the uid of the first, and is the same attempt: it gets the same answer. Other requests of one uid are new attempts,
// for which the hook has asked.
func (s *Webhooks) answer(ctx context.Context, path string, r *admissionv1.AdmissionRequest) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.calls[r.UID]
	if p == nil {
		p = &progress{}
		s.calls[r.UID] = p
	}
	if p.attempts > 0 && p.last.Drop {
		return p.last
	}
	p.last = s.play(ctx, path, r).attempt(p.attempts)
	p.attempts++
	return p.last
}

// ServeHTTP implements http.Handler.
func (s *Webhooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.enter()
	defer s.leave()
	// Only a request that was read to its end notices that its caller has gone.
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Context().Err() != nil {
		return
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
		http.Error(w, "not an AdmissionReview", http.StatusBadRequest)
		return
	}
	ctx := withRequestInfo(r.Context(), RequestInfo{Version: review.APIVersion, Timeout: r.URL.Query().Get("timeout")})
	answer := s.answer(ctx, strings.TrimPrefix(r.URL.Path, "/"), review.Request)
	if !answer.Hang || answer.Cut > 0 {
		clock.Sleep(ctx, answer.Delay)
		answer.send(w, &review)
	}
	if answer.Hang {
		<-ctx.Done()
	}
}

// send answers review, in the version in which it came.
func (a Answer) send(w http.ResponseWriter, review *admissionv1.AdmissionReview) {
	if a.Drop && a.Cut == 0 {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to close the connection
	}
	body := a.Body
	if body == nil {
		body = a.encode(review)
	}
	w.Header().Set("Content-Type", "application/json")
	maps.Copy(w.Header(), a.Header)
	if a.Code != 0 {
		w.WriteHeader(a.Code)
	}
	_, _ = w.Write(body[:max(len(body)-a.Cut, 0)])
	if a.Drop || a.Hang {
		_ = http.NewResponseController(w).Flush()
	}
	if a.Drop {
		panic(http.ErrAbortHandler) //nolint:forbidigo // as above
	}
}

func (a Answer) encode(request *admissionv1.AdmissionReview) []byte {
	review := admissionv1.AdmissionReview{TypeMeta: request.TypeMeta}
	if a.Response != nil {
		review.Response = a.Response.DeepCopy()
		if review.Response.UID == "" {
			review.Response.UID = request.Request.UID
		}
	}
	if a.Edit != nil {
		a.Edit(&review)
	}
	body, err := json.Marshal(review)
	if err != nil {
		return []byte(err.Error())
	}
	return body
}
