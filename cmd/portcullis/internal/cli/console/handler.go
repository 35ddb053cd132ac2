package console

import (
	"context"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

// files are the page.
//
//go:embed page
var files embed.FS

// policy lets the page load its own files and nothing else, run no inline script or style, be in no frame, and make no HTML of text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// MaxRequests bounds the requests for data that are served at a time; others are answered 503. One page has two at a time.
const MaxRequests = 8

// defaultWindow and maxWindow are how far data looks back, and how far it may: dispatchers keep an hour.
const (
	defaultWindow = 15 * time.Minute
	maxWindow     = time.Hour
)

// handler serves the page to all, and data to those who know the token.
type handler struct {
	reader *reader
	token  string
	slots  chan struct{}
}

func newHandler(r *reader, token string) http.Handler {
	h := &handler{reader: r, token: token, slots: make(chan struct{}, MaxRequests)}
	page, _ := fs.Sub(files, "page") // embedded
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(page))
	mux.HandleFunc("GET /data/state", h.data(func(ctx context.Context, r *http.Request) (any, error) {
		window, err := windowOf(r)
		if err != nil {
			return nil, err
		}
		return h.reader.state(ctx, window)
	}))
	mux.HandleFunc("GET /data/reviews", h.data(func(ctx context.Context, r *http.Request) (any, error) {
		window, err := windowOf(r)
		if err != nil {
			return nil, err
		}
		q := r.URL.Query()
		return h.reader.reviews(ctx, &analysisv1.ListReviewsRequest{
			Id: q.Get("id"), Cluster: q.Get("cluster"), Hook: q.Get("hook"), Since: timestamppb.New(time.Now().Add(-window)),
		})
	}))
	mux.HandleFunc("GET /data/shadows", h.data(func(ctx context.Context, r *http.Request) (any, error) {
		return h.reader.shadows(ctx, r.URL.Query().Get("hook"))
	}))
	return headers(mux)
}

// windowOf is how far a request looks back.
func windowOf(r *http.Request) (time.Duration, error) {
	text := r.URL.Query().Get("since")
	if text == "" {
		return defaultWindow, nil
	}
	window, err := time.ParseDuration(text)
	if err != nil || window <= 0 || window > maxWindow {
		return 0, errBadWindow
	}
	return window, nil
}

// headers sets the headers of each answer.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			w.Header().Set(name, value)
		}
		next.ServeHTTP(w, r)
	})
}

// data answers a request that has the token with JSON. The browser sends the token in a header that only the page can set: another page of
// the same browser, which could send cookies, cannot read here.
func (h *handler) data(answer func(context.Context, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+h.token)) != 1 {
			fail(w, http.StatusUnauthorized, "this page has no token, or the token of an earlier console: open the address that `portcullis console` printed")
			return
		}
		select {
		case h.slots <- struct{}{}:
			defer func() { <-h.slots }()
		default:
			fail(w, http.StatusServiceUnavailable, "the console serves too many requests: close some of its pages")
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), h.reader.timeout)
		defer cancel()
		switch found, err := answer(ctx, r); {
		case errors.Is(err, errBadWindow):
			fail(w, http.StatusBadRequest, err.Error())
		case err != nil:
			fail(w, http.StatusBadGateway, status.Convert(err).Message())
		default:
			write(w, http.StatusOK, found)
		}
	}
}

func fail(w http.ResponseWriter, code int, message string) {
	write(w, code, map[string]string{"error": message})
}

func write(w http.ResponseWriter, code int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		code, data = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(data) // an error means that the browser has gone
}
