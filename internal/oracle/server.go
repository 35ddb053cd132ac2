package oracle

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
)

// server is every scripted hook, each at its own path of one HTTPS server.
type server struct {
	options Options
	http    *httptest.Server
	ca      []byte

	mu      sync.Mutex
	called  []string
	answers map[types.UID]Answer // of the calls in called
	running int                  // scripts that have not ended
	ended   *sync.Cond           // one has
}

func newServer(t testing.TB, o Options) *server {
	s := &server{options: o, answers: map[types.UID]Answer{}}
	s.ended = sync.NewCond(&s.mu)
	s.http = httptest.NewUnstartedServer(s)
	s.http.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // callers that give up are part of the script
	s.http.StartTLS()
	t.Cleanup(s.http.Close)
	s.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	return s
}

// point makes c lead to the script of a hook, if it has one.
func (s *server) point(key string, c *admissionregistrationv1.WebhookClientConfig) {
	if s.script(key) == nil {
		return
	}
	url := s.http.URL + "/" + key
	*c = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: s.ca}
}

func (s *server) script(key string) Script {
	if script, ok := s.options.Scripts[key]; ok {
		return script
	}
	return s.options.Default
}

// begin forgets the calls of the review before.
func (s *server) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.called, s.answers = nil, map[types.UID]Answer{}
}

// end returns the hooks that were called since begin, in the order in which the calls arrived. It waits for the
// scripts that are still running: their callers have given up, so they end.
func (s *server) end() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.running > 0 {
		s.ended.Wait()
	}
	return s.called
}

func (s *server) enter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
}

// answer asks the script of a hook. A request that net/http sends again, since its connection went away before the answer,
// has the uid of the first: it is the same call, and gets the same answer.
func (s *server) answer(ctx context.Context, key string, r *admissionv1.AdmissionRequest) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, again := s.answers[r.UID]
	if !again {
		a = s.script(key)(ctx, r)
		s.called, s.answers[r.UID] = append(s.called, key), a
	}
	return a
}

func (s *server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.ended.Broadcast()
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.URL.Path, "/")
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
	answer := s.answer(r.Context(), key, review.Request)
	wait(r, answer)
	answer.send(w, &review)
}

// wait takes the time that the script takes.
func wait(r *http.Request, a Answer) {
	if a.Hang {
		<-r.Context().Done()
		return
	}
	timer := time.NewTimer(a.Delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}

// send answers review, in the version in which it came.
func (a Answer) send(w http.ResponseWriter, review *admissionv1.AdmissionReview) {
	if a.Drop {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to close the connection
	}
	body := a.Body
	if body == nil {
		body = a.encode(review)
	}
	w.Header().Set("Content-Type", "application/json")
	if a.Code != 0 {
		w.WriteHeader(a.Code)
	}
	_, _ = w.Write(body)
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
