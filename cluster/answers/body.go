package answers

import (
	"cmp"
	"fmt"
	"io"
)

func (t Transport) bounded(body io.ReadCloser, watch bool) io.ReadCloser {
	b := &boundedBody{ReadCloser: body, most: cmp.Or(t.MaxBytes, MaxBytes), mostParts: cmp.Or(t.MaxParts, MaxParts)}
	if b.mostDocument = b.most; watch {
		b.mostDocument = min(b.most, MaxEventBytes)
	}
	return b
}

// boundedBody returns an error in place of the bytes that go past a bound. One goroutine reads it.
type boundedBody struct {
	io.ReadCloser

	most, mostDocument int64 // bytes: of the answer, and of one document in it
	mostParts          int

	read     int64 // so far, in bytes
	document int64 // of the document that is being read
	parts    int   // objects and arrays of it
	depth    int
	text     bool // inside of a string
	escaped  bool // behind a backslash
	err      error
}

// Read implements [io.Reader].
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p)
	if b.read += int64(n); b.read > b.most {
		b.err = fmt.Errorf("the answer of the API server is larger than %d bytes", b.most)
	}
	for i := 0; i < n && b.err == nil; i++ {
		b.err = b.scan(p[i])
	}
	if b.err != nil {
		return 0, b.err
	}
	return n, err
}

// scan counts one byte of JSON. Whether it is JSON is left to the decoder.
func (b *boundedBody) scan(c byte) error {
	if b.document++; b.document > b.mostDocument {
		return fmt.Errorf("an event of a watch of the API server is larger than %d bytes", b.mostDocument)
	}
	switch {
	case b.escaped:
		b.escaped = false
	case b.text:
		b.text, b.escaped = c != '"', c == '\\'
	case c == '"':
		b.text = true
	case c == '{', c == '[':
		return b.open()
	case c == '}', c == ']':
		if b.depth--; b.depth <= 0 {
			b.depth, b.parts, b.document = 0, 0, 0
		}
	}
	return nil
}

func (b *boundedBody) open() error {
	b.depth++
	b.parts++
	switch {
	case b.depth > MaxDepth:
		return fmt.Errorf("the answer of the API server is nested deeper than %d levels", MaxDepth)
	case b.parts > b.mostParts:
		return fmt.Errorf("the answer of the API server has more than %d objects and arrays", b.mostParts)
	}
	return nil
}
