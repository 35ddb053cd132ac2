package cluster

import (
	"fmt"
	"io"
	"net/http"
)

// MaxAnswerBytes bounds one answer of the API server of a cluster, unpacked, in bytes: client-go reads lists whole, and events of any length.
// A list of 2,000 CustomResourceDefinitions has about 100 MiB. A watch that has sent more begins again with a list.
const MaxAnswerBytes = 256 << 20

// limitedAnswers bounds the answers of a transport.
type limitedAnswers struct {
	http.RoundTripper

	most int64
}

// RoundTrip implements [http.RoundTripper].
func (t limitedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = &limitedBody{ReadCloser: response.Body, most: t.most, left: t.most}
	}
	return response, err
}

// WrappedRoundTripper has client-go find the transport below, whose idle connections it closes.
func (t limitedAnswers) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// limitedBody returns an error in place of the byte past its limit. One goroutine reads it.
type limitedBody struct {
	io.ReadCloser

	most, left int64
}

// Read implements [io.Reader].
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("the answer of the API server is larger than %d bytes", b.most)
	}
	return n, err
}
