package jsonreview

import (
	"io"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// Body is the body of a request, parts of it shared with other requests. Immutable.
type Body struct {
	head []byte
	tail [][]byte
}

// NewBody is the shared review with a uid of its own.
func NewBody(r *conversion.SharedReview, uid string) Body {
	head, tail := r.Pieces(uid)
	return Body{head, tail}
}

// BodyOf is a body of bytes, which must not be written any more.
func BodyOf(b []byte) Body { return Body{head: b} }

// Len is the number of bytes.
func (b Body) Len() int64 {
	n := len(b.head)
	for _, piece := range b.tail {
		n += len(piece)
	}
	return int64(n)
}

// Open begins a new reading of the body, for http.Request.Body and GetBody.
func (b Body) Open() io.ReadCloser { return &bodyReader{b} }

// bodyReader reads the pieces of a body without joining them. Its head and tail are the unread rest.
type bodyReader struct{ Body }

// Read implements io.Reader. It fills p over the borders of pieces, so that a small review is one write.
func (r *bodyReader) Read(p []byte) (n int, err error) {
	for n < len(p) && (len(r.head) > 0 || len(r.tail) > 0) {
		if len(r.head) == 0 {
			r.head, r.tail = r.tail[0], r.tail[1:]
		}
		copied := copy(p[n:], r.head)
		n, r.head = n+copied, r.head[copied:]
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Close implements io.Closer.
func (*bodyReader) Close() error { return nil }
