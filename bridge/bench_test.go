package bridge

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// discard is a ResponseWriter that costs nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header              { return d.header }
func (d discard) WriteHeader(int)                  {}
func (d discard) Write(b []byte) (int, error)      { return len(b), nil }
func (d discard) SetReadDeadline(time.Time) error  { return nil }
func (d discard) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkHandler is the edge without a connection: the cost of a review between net/http and the Reviewer.
func BenchmarkHandler(b *testing.B) {
	for _, size := range []int{2_000, 20_000} {
		b.Run(fmt.Sprintf("%dkB", size/1000), func(b *testing.B) {
			handler := newBridge(b, testOptions(allow))
			body := []byte(reviewOf("0f8d3b5e-5a5e-4f0e-9d53-4c5d7c3f2b11", size))
			reader := bytes.NewReader(body)
			request := &http.Request{
				Method: http.MethodPost, URL: &url.URL{Path: validatePath + "/closed", RawQuery: "timeout=10s"},
				Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(size),
				Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(reader), TLS: trusted(),
			}
			request = request.WithContext(context.WithValue(b.Context(), connectionKey{}, &connection{channel: verified(request.TLS)})) // as Server has it
			w := discard{http.Header{}}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				reader.Reset(body)
				handler.ServeHTTP(w, request)
			}
		})
	}
}

// BenchmarkRoundTrip is the whole edge over TLS on loopback, both ends counted.
func BenchmarkRoundTrip(b *testing.B) {
	for _, size := range []int{2_000, 20_000} {
		b.Run(fmt.Sprintf("%dkB", size/1000), func(b *testing.B) {
			e := serve(b, testOptions(allow))
			client := e.client(b)
			body := reviewOf("0f8d3b5e-5a5e-4f0e-9d53-4c5d7c3f2b11", size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(loop *testing.PB) {
				for loop.Next() {
					response, err := client.Post(e.url(validatePath+"?timeout=10s"), "application/json", strings.NewReader(body))
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
			})
		})
	}
}
