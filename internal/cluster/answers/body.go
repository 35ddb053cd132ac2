package answers

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
)

const (
	// bytesFactor, partBytes and valueBytes are the memory that bytes, parts and other values of an answer take while they are read and decoded: the
	// reader's buffer doubles, a JSONSchemaProps in a map has half a kilobyte, and a place that may be free, and a number of two bytes has 16 in a list.
	// Items and events are decoded into types: a decoder makes half a kilobyte of a number in the place of a schema, before it refuses that.
	bytesFactor    = 4
	partBytes      = 2 << 10
	valueBytes     = 64
	itemValueBytes = 512
	// bookedAhead is how much is booked at a time, in bytes.
	bookedAhead = 4 << 10
)

// bound bounds the body of an answer to a request, and books it.
func (t Transport) bound(request *http.Request, answer *http.Response) error {
	b := &boundedBody{ReadCloser: answer.Body, most: MaxBytes, mostUnit: MaxBytes, mostParts: MaxParts, level: 1}
	if t.Work != nil {
		b.turn = func() (done func(), err error) { return t.Work.Wait(request.Context(), t.Cluster, true) }
	}
	switch {
	case request.URL.Query().Has("watch"):
		b.most, b.mostUnit, b.mostParts, b.watch = MaxListBytes, MaxItemBytes, MaxItemParts, true
		b.level = 2
		if t.Work != nil {
			b.spend = func(work time.Duration) { t.Work.Spend(t.Cluster, work) } // the next turn waits for the rest
		}
	case isOfOneObject(request):
		b.most, b.mostUnit = MaxObjectBytes, MaxObjectBytes
	case t.ItemByItem:
		b.most, b.mostUnit, b.mostParts, b.list = MaxListBytes, MaxItemBytes, MaxItemParts, true
	}
	var err error
	if b.reservation, b.release, err = t.reservation(request.Context()); err != nil {
		return fmt.Errorf("reading the answer of the API server: %w", err)
	}
	answer.Body = b
	if b.watch || b.list {
		return nil
	}
	return shortened(answer, b)
}

// isOfOneObject reports whether a request has one object for an answer: a review that is sent, or the metadata of an object.
func isOfOneObject(r *http.Request) bool {
	return r.Method == http.MethodPost || strings.Contains(r.Header.Get("Accept"), ";as=PartialObjectMetadata;")
}

// boundedBody returns an error in place of the bytes that go past a bound. One goroutine reads it, and any may close it.
//
// A unit is decoded at once: the answer, a document of a watch, or an item or another member of a list.
type boundedBody struct {
	io.ReadCloser

	most, mostUnit int64 // bytes: of the answer, and of a unit
	mostParts      int   // of a unit
	watch, list    bool
	turn           func() (done func(), err error) // for bytes past readAtOnce; nil needs none
	spend          func(work time.Duration)        // counts work between two reads of a watch, which has no end; nil counts none

	mu          sync.Mutex // for the reservation, which is used until closed is set
	reservation *memory.Reservation
	release     func()
	booked      int64
	closed      bool

	returned time.Time // when Read returned last

	read    int64 // so far, in bytes
	unit    int64 // bytes of this unit
	parts   int   // objects and arrays of it
	commas  int64 // of it: there are no more other values, but for one in each part
	largest int64 // unit so far, in bytes: the buffers of the reader stay as large
	depth   int
	level   int  // of the members of an object that may be a Status
	array   bool // the second level is an array
	text    bool // inside of a string
	escaped bool // behind a backslash
	kind    kindScan
	err     error
}

// Read implements [io.Reader].
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.spend != nil {
		if !b.returned.IsZero() {
			b.spend(time.Since(b.returned))
		}
		defer func() { b.returned = time.Now() }()
	}
	if b.err = b.book(int64(len(p))); b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p)
	if b.read += int64(n); b.read > b.most {
		b.err = fmt.Errorf("the answer of the API server is larger than %d bytes", b.most)
	}
	if b.err == nil {
		b.err = b.countInTurn(p[:n])
	}
	if b.err == nil {
		b.err = b.book(0)
	}
	if b.err != nil {
		return 0, b.err
	}
	return n, err
}

// Close implements [io.Closer]. Bytes in a reservation of the caller stay until the caller releases it, but for a list.
func (b *boundedBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		if b.closed = true; b.list {
			b.reservation.Shrink(b.booked)
		}
		b.release()
	}
	return b.ReadCloser.Close()
}

// book books this unit and so many bytes more.
func (b *boundedBody) book(more int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	need := bytesFactor*max(b.largest, b.unit+more) + partBytes*int64(b.parts) + b.valueBytes()*b.commas
	switch {
	case b.closed:
		return http.ErrBodyReadAfterClose
	case need <= b.booked:
		return nil
	}
	need += bookedAhead
	if err := b.reservation.Grow(need - b.booked); err != nil {
		return fmt.Errorf("reading the answer of the API server: %w", err)
	}
	b.booked = need
	return nil
}

// valueBytes is the memory of a value that is neither an object nor an array, in bytes.
func (b *boundedBody) valueBytes() int64 {
	if b.watch || b.list {
		return itemValueBytes
	}
	return valueBytes
}

// endUnit gives back the memory of a unit, which was decoded when the next one is read.
func (b *boundedBody) endUnit() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.largest = max(b.largest, b.unit)
	keep := min(b.booked, bytesFactor*b.largest)
	b.reservation.Shrink(b.booked - keep)
	b.unit, b.parts, b.commas, b.booked, b.kind = 0, 0, 0, keep, kindScan{}
}

// countInTurn is count in a turn of the cluster, if the answer is long.
func (b *boundedBody) countInTurn(p []byte) error {
	if b.turn == nil || b.read <= readAtOnce {
		return b.count(p)
	}
	done, err := b.turn()
	if err != nil {
		return fmt.Errorf("reading a long answer of the API server: %w", err)
	}
	defer done()
	return b.count(p)
}

// count counts bytes of JSON.
func (b *boundedBody) count(p []byte) error {
	for len(p) > 0 {
		if plain := b.plain(p); plain > 0 {
			b.unit += int64(plain)
			p = p[plain:]
			continue
		}
		if err := b.scan(p[0]); err != nil {
			return err
		}
		p = p[1:]
	}
	return nil
}

// plainAtATime bounds how far plain looks, in bytes, so that a text of backslashes is not searched again for each of them.
const plainAtATime = 256

// plain is how many bytes come next that are inside of a text and change nothing but the size of the unit: API servers, and attackers, send mostly texts.
// It is a bound of the time that reading takes, and 0 near a bound of bytes.
func (b *boundedBody) plain(p []byte) int {
	p = p[:min(len(p), plainAtATime)]
	if !b.text || b.escaped || b.depth == b.level || b.kind.status || b.unit+int64(len(p)) > b.mostUnit {
		return 0
	}
	if quote := bytes.IndexByte(p, '"'); quote >= 0 {
		p = p[:quote]
	}
	if backslash := bytes.IndexByte(p, '\\'); backslash >= 0 {
		p = p[:backslash]
	}
	return len(p)
}

// scan counts one byte of JSON. Whether it is JSON is left to the decoder.
func (b *boundedBody) scan(c byte) error {
	b.unit++
	if b.depth == b.level {
		b.kind.scan(c, b.text, b.escaped)
	}
	switch {
	case b.kind.status && b.unit > MaxErrorBytes:
		return fmt.Errorf("a Status in the answer of the API server is larger than %d bytes", MaxErrorBytes)
	case b.unit > b.mostUnit:
		return fmt.Errorf("an item or event in the answer of the API server is larger than %d bytes", b.mostUnit)
	}
	switch {
	case b.escaped:
		b.escaped = false
	case b.text:
		b.text, b.escaped = c != '"', c == '\\'
	case c == '"':
		b.text = true
	case c == '{', c == '[':
		return b.open(c)
	case c == '}', c == ']':
		if b.depth--; b.depth <= 0 {
			if b.depth = 0; b.watch {
				b.endUnit()
			}
		}
	case c == ',':
		if b.commas++; b.list && (b.depth == 1 || b.depth == 2 && b.array) {
			b.endUnit()
		}
	}
	return nil
}

func (b *boundedBody) open(c byte) error {
	b.depth++
	b.parts++
	if b.depth == 2 {
		b.array = c == '['
	}
	switch {
	case b.depth > MaxDepth:
		return fmt.Errorf("the answer of the API server is nested deeper than %d levels", MaxDepth)
	case b.parts > b.mostParts:
		return fmt.Errorf("the answer of the API server has more than %d objects and arrays, in one item or event of it or in all", b.mostParts)
	}
	return b.book(0)
}
