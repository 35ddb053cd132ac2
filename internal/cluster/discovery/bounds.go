package discovery

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

// bounded sends the requests of one discovery in its context, since client-go takes none, and bounds the answers together. An answer past a bound ends the
// discovery: client-go would log an error for each of the others.
type bounded struct {
	over         http.RoundTripper
	ctx          context.Context //nolint:containedctx // as documented
	end          context.CancelCauseFunc
	bytes, parts atomic.Int64 // so far
}

// RoundTrip implements [http.RoundTripper]. Errors of the API server are bounded by the way to it.
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.over.RoundTrip(r.WithContext(b.ctx))
	if err == nil && response.StatusCode == http.StatusOK {
		response.Body = &body{ReadCloser: response.Body, of: b}
	}
	return response, err
}

// body returns an error in place of the bytes that go past a bound. One goroutine reads it.
type body struct {
	io.ReadCloser

	of      *bounded
	text    bool // inside of a text
	escaped bool // behind a backslash
	length  int  // of the text
	err     error
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p)
	if b.err = b.count(p[:n]); b.err != nil {
		b.of.end(b.err)
		return 0, b.err
	}
	return n, err
}

func (b *body) count(p []byte) error {
	if b.of.bytes.Add(int64(len(p))) > answers.MaxBytes {
		return fmt.Errorf("the answers of the API server to discovery have more than %d bytes", answers.MaxBytes)
	}
	if b.of.parts.Add(b.scan(p)) > answers.MaxParts {
		return fmt.Errorf("the answers of the API server to discovery have more than %d objects and arrays", answers.MaxParts)
	}
	if b.length > MaxTextBytes {
		return fmt.Errorf("a text in the answer of the API server to discovery has more than %d bytes", MaxTextBytes)
	}
	return nil
}

// scan follows texts, and returns the number of objects and arrays that begin. It stops in a text that is too long.
func (b *body) scan(p []byte) (parts int64) {
	for len(p) > 0 && b.length <= MaxTextBytes {
		next := 1
		switch c := p[0]; {
		case b.escaped:
			b.escaped = false
			b.length++
		case b.text && c == '"':
			b.text = false
		case b.text && c == '\\':
			b.escaped = true
			b.length++
		case b.text:
			if end := bytes.IndexAny(p, `"\`); end >= 0 {
				next = end
			} else {
				next = len(p)
			}
			b.length += next
		case c == '"':
			b.text, b.length = true, 0
		case c == '{', c == '[':
			parts++
		}
		p = p[next:]
	}
	return parts
}
