package adapt

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"

	"github.com/portcullis-mesh/portcullis/bridge/jsonreview"
)

// errAborted is why a handler gave no answer that panicked with http.ErrAbortHandler.
var errAborted = errors.New("the handler aborted")

// inProcess is a network that consists of a handler.
type inProcess struct{ handler http.Handler }

var _ http.RoundTripper = inProcess{}

// RoundTrip implements [http.RoundTripper]. A panic of the handler passes, but for http.ErrAbortHandler.
func (n inProcess) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{}) // The handler sees the review from here on.
	}
	defer func() {
		if p := recover(); p == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so
			resp, err = nil, errAborted
		} else if p != nil {
			panic(p) //nolint:forbidigo // it was the handler's, and hostsdk contains it
		}
	}()
	asked := *r // as a server sees a request: the client's part of it is empty
	asked.GetBody, asked.RequestURI, asked.RemoteAddr = nil, r.URL.RequestURI(), "localhost"
	w := &recorder{header: http.Header{}}
	n.handler.ServeHTTP(w, &asked)
	return w.response(r), nil
}

// recorder holds the answer of a handler, as far as answers are read.
type recorder struct {
	header http.Header
	code   int         // 0 until the head is written
	sent   http.Header // once it is
	body   bytes.Buffer
}

var (
	_ http.ResponseWriter = (*recorder)(nil)
	_ http.Flusher        = (*recorder)(nil)
)

// Header implements [http.ResponseWriter].
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter]. The first final status counts.
func (w *recorder) WriteHeader(code int) {
	if w.code != 0 || code < http.StatusOK && code != http.StatusSwitchingProtocols {
		return
	}
	w.code, w.sent = code, w.header.Clone()
}

// Write implements [http.ResponseWriter]. Bytes past the limit of answers are forgotten.
func (w *recorder) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.code == http.StatusNoContent || w.code == http.StatusNotModified {
		return 0, http.ErrBodyNotAllowed
	}
	if left := jsonreview.MaxAnswerBytes + 1 - w.body.Len(); len(b) > left {
		w.body.Write(b[:left])
		return len(b), nil
	}
	return w.body.Write(b)
}

// Flush implements [http.Flusher].
func (w *recorder) Flush() { w.WriteHeader(http.StatusOK) }

// response is the answer as a client has it. An answer that is shorter than announced is cut off.
func (w *recorder) response(r *http.Request) *http.Response {
	w.WriteHeader(http.StatusOK)
	var body io.Reader = &w.body
	announced, err := strconv.Atoi(w.sent.Get("Content-Length"))
	if err == nil && announced > w.body.Len() && w.body.Len() <= jsonreview.MaxAnswerBytes {
		body = io.MultiReader(body, cutOff{})
	}
	return &http.Response{
		Status: strconv.Itoa(w.code) + " " + http.StatusText(w.code), StatusCode: w.code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: w.sent,
		Body: io.NopCloser(body), ContentLength: int64(w.body.Len()), Request: r,
	}
}

// cutOff is the rest of a body that does not come.
type cutOff struct{}

func (cutOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
