package hostile

import (
	"compress/gzip"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/test/e2e/pki"
)

// zeros are written over and over.
var zeros [64 << 10]byte

// endless writes text until the reader has gone.
func endless(w io.Writer, text string) {
	for range 1 << 20 { // 64 GiB at most
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

// answers are the answers of a server of the tenant to requests for JSON.
func answers() []http.HandlerFunc {
	many := strings.Repeat(`{},`, 20_000)
	return []http.HandlerFunc{
		func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, // hangs
		func(w http.ResponseWriter, _ *http.Request) { // an endless list
			_, _ = io.WriteString(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`)
			endless(w, many)
		},
		func(w http.ResponseWriter, _ *http.Request) { // an endless text
			_, _ = io.WriteString(w, `{"kind":"`)
			endless(w, strings.Repeat("x", len(zeros)))
		},
		func(w http.ResponseWriter, _ *http.Request) { // zeros, a thousand for each byte
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			endless(z, string(zeros[:]))
		},
		func(w http.ResponseWriter, _ *http.Request) { // lists in lists
			_, _ = io.WriteString(w, `{"items":`+strings.Repeat("[", 1<<20))
		},
		func(w http.ResponseWriter, r *http.Request) { // one byte in a while
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, " ")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
		},
		func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		},
		func(w http.ResponseWriter, _ *http.Request) { // an endless error
			w.WriteHeader(http.StatusInternalServerError)
			endless(w, strings.Repeat("e", len(zeros)))
		},
		func(w http.ResponseWriter, _ *http.Request) { // protobuf
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
			_, _ = w.Write(append([]byte("k8s\x00"), make([]byte, 1<<20)...))
		},
		func(w http.ResponseWriter, _ *http.Request) { // headers
			for n := range 10_000 {
				w.Header().Set(fmt.Sprintf("X-%d", n), strings.Repeat("h", 1000))
			}
		},
		func(w http.ResponseWriter, _ *http.Request) { // a connection that breaks
			panic(http.ErrAbortHandler)
		},
	}
}

// inTurn gives each request another answer, and counts them.
func (a *attack) inTurn(all []http.HandlerFunc) http.Handler {
	var asked atomic.Uint64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.count("answered")
		w.Header().Set("Content-Type", "application/json")
		all[asked.Add(1)%uint64(len(all))](w, r)
	})
}

// serve starts a server of the tenant, which ends with the attack. The result is its URL.
func (a *attack) serve(handler http.Handler) (url string, authority *pki.Authority) {
	a.Helper()
	authority, err := pki.NewAuthority("tenant")
	if err != nil {
		a.Fatal(err)
	}
	pair, err := authority.Server("127.0.0.1")
	if err != nil {
		a.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		a.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	server.EnableHTTP2 = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	a.ends = append(a.ends, func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL, authority
}

// bundle is the certificate of an authority as caBundle has it.
func bundle(authority *pki.Authority) string {
	return base64.StdEncoding.EncodeToString(authority.PEM())
}
