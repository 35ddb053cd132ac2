// Package webhook is an ordinary HTTPS admission webhook whose answers a test
// scripts and whose calls it can look at. The tests of the harness use it to
// see the requests of kube-apiserver. The tests of the mesh use it as the JSON
// webhook that the mesh calls in its turn.
package webhook

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/test/e2e/pki"
)

// Script answers one request. It may be called concurrently and must not
// change the request. The uid of the answer is filled in for it.
type Script func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

// Call is one review that arrived.
type Call struct {
	// Client is the common name of the certificate that the caller presented.
	Client string
	// Header is the head of the HTTP request; the holder must not change it.
	Header http.Header
	// Version is the apiVersion of the review.
	Version string
	// URL is the path and query that were asked for.
	URL *url.URL
	// Request is the review's request; the holder must not change it.
	Request *admissionv1.AdmissionRequest
	// Received is when it had been read.
	Received time.Time
}

// Server is a running webhook. Its methods are safe for concurrent use.
type Server struct {
	http    *httptest.Server
	script  Script
	callers *pki.Authority
	names   []string // and addresses, in its certificate
	tls     atomic.Pointer[tls.Config]

	mu    sync.Mutex
	calls []Call // guarded by mu
}

// Serve starts a webhook on a free port of 127.0.0.1, with a certificate of
// authority, also for names, for callers with a certificate of the same. It
// ends with the test.
func Serve(t testing.TB, authority *pki.Authority, script Script, names ...string) *Server {
	t.Helper()
	s := &Server{script: script, callers: authority, names: append([]string{"127.0.0.1"}, names...)}
	s.Certify(t, authority)
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(s.handle))
	s.http.TLS = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.tls.Load(), nil },
	}
	s.http.StartTLS()
	t.Cleanup(s.http.Close)
	return s
}

// Certify has the server show new connections another certificate, of any
// authority. It accepts callers of the authority that it was started with.
func (s *Server) Certify(t testing.TB, authority *pki.Authority) {
	t.Helper()
	pair, err := authority.Server(s.names...)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	s.tls.Store(&tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{certificate},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    s.callers.Pool(),
	})
}

// URL is the server's address without a path.
func (s *Server) URL() string { return s.http.URL }

// Address is the host:port that the server listens on.
func (s *Server) Address() string { return s.http.Listener.Addr().String() }

// Kill ends the server before the test does: connections are refused from
// then on.
func (s *Server) Kill() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// Calls are the calls so far, in the order of their arrival.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, fmt.Sprintf("read the review: %v", err), http.StatusBadRequest)
		return
	}
	if review.Request == nil {
		http.Error(w, "the review has no request", http.StatusBadRequest)
		return
	}
	s.record(Call{
		Client: r.TLS.PeerCertificates[0].Subject.CommonName, Header: r.Header, URL: r.URL,
		Version: review.APIVersion, Request: review.Request, Received: time.Now(),
	})
	response := s.script(review.Request)
	response.UID = review.Request.UID
	w.Header().Set("Content-Type", "application/json")
	// A caller that has gone away needs no answer: the error has no reader.
	_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: response})
}

func (s *Server) record(c Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, c)
}

// Allow lets everything pass.
func Allow(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

// Deny refuses everything with code and message.
func Deny(code int32, message string) Script {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: code, Message: message}}
	}
}

// Patch applies a JSON Patch (RFC 6902) to everything.
func Patch(operations string) Script {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		kind := admissionv1.PatchTypeJSONPatch
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(operations), PatchType: &kind}
	}
}
