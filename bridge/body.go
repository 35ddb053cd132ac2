package bridge

import (
	"errors"
	"io"
	"net/http"
	"os"
	"runtime"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const (
	// firstChunk is the first buffer for a body whose length is not announced; it doubles from there.
	firstChunk = 32 << 10
	// headBytes is the part of a review that is searched for its uid when the whole cannot be read. API servers write kind,
	// apiVersion and uid first.
	headBytes = 64 << 10
	// drainBytes is the part of a refused review that is read and discarded before it is answered. A caller that is still
	// sending when the connection closes may never see the answer: a lost denial is a failure of the entry, and a lost
	// connection costs a handshake when there is least time for it. 48 MiB is more than an API server can send: two objects of
	// 3 MiB whose every byte takes six in JSON are 36 MiB, and a third for everything around them.
	drainBytes = 48 << 20
)

// read reads the whole body into a buffer of its own, which is never reused: the objects of the review refer to it. The bytes are
// reserved before they are read. Of a body that is announced to be too large only the head is read.
func (x *exchange) read() *refusal {
	limit, size := x.bridge.options.MaxBodyBytes, x.request.ContentLength
	oversized := size > limit
	if oversized {
		size = headBytes
	}
	var body []byte
	var err error
	if x.reservation, err = x.bridge.options.Memory.Reserve(x.cluster, reviewBytes(x.stage, max(0, size))); err != nil {
		return x.noMemory(err)
	}
	if size >= 0 {
		body, err = readExactly(&x.content, size)
	} else {
		body, err = readGrowing(&x.content, limit, func(bytes int64) error { return x.reservation.Grow(bytes * bytesPerByte(x.stage)) })
	}
	switch {
	case err != nil && overBudget(err):
		return x.noMemory(err)
	case oversized, int64(len(body)) > limit: // An announced length counts, whatever has arrived in time.
		return x.overLimit(body)
	case err != nil:
		return x.unread(body, err)
	}
	x.body = body
	return nil
}

// yieldBytes is how much of a body is read before other goroutines compute.
const yieldBytes = 64 << 10

// yieldingBody lets other goroutines compute while it is read. To read and decrypt a body that has arrived takes a processor for milliseconds without
// a wait, and a cluster may send as many at a time as it has calls: small reviews of others would stand behind all of them.
type yieldingBody struct {
	io.Reader

	read int // since others could compute
}

// Read implements [io.Reader].
func (b *yieldingBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p[:min(len(p), yieldBytes)])
	if b.read += n; b.read >= yieldBytes {
		b.read = 0
		runtime.Gosched()
	}
	return n, err //nolint:wrapcheck // it passes through
}

// overBudget reports whether an error is a lack of memory.
func overBudget(err error) bool {
	var full *memory.FullError
	return errors.As(err, &full)
}

// reviewBytes is the memory of a review with a body of so many bytes, reserved before the body is read. Where hooks may patch it
// includes the patched object: a patch that has arrived comes too late to find that there is no memory for it.
func reviewBytes(stage admissionv1.Stage, body int64) int64 {
	return ReviewBytes + body*bytesPerByte(stage)
}

func bytesPerByte(stage admissionv1.Stage) int64 {
	if stage == admissionv1.Stage_STAGE_VALIDATE {
		return 1
	}
	return 1 + review.PatchedPerByte
}

func readExactly(body io.Reader, size int64) ([]byte, error) {
	buffer := make([]byte, size)
	n, err := io.ReadFull(body, buffer)
	return buffer[:n], err
}

// readGrowing reads a body of unknown length, and stops one byte past the limit.
func readGrowing(body io.Reader, limit int64, book func(bytes int64) error) ([]byte, error) {
	size := min(firstChunk, limit+1)
	if err := book(size); err != nil {
		return nil, err
	}
	buffer := make([]byte, 0, size)
	for {
		n, err := body.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		switch {
		case int64(len(buffer)) > limit, errors.Is(err, io.EOF):
			return buffer, nil
		case err != nil:
			return buffer, err
		case len(buffer) < cap(buffer):
			continue
		}
		larger := min(2*int64(cap(buffer)), limit+1)
		if err := book(larger - int64(cap(buffer))); err != nil {
			return buffer, err
		}
		buffer = append(make([]byte, 0, larger), buffer...)
	}
}

// overLimit refuses a body that is too large.
func (x *exchange) overLimit(head []byte) *refusal {
	x.decodeHead(head)
	x.drain()
	return tooLarge(x.bridge.options.MaxBodyBytes)
}

// uidBytes is the part of a review without memory that is searched for its uid.
const uidBytes = 4 << 10

// noMemory frees the memory of the exchange before it discards the body.
func (x *exchange) noMemory(err error) *refusal {
	x.reservation.Release()
	x.reservation = nil
	head, _ := readExactly(io.LimitReader(&x.content, uidBytes), uidBytes)
	x.decodeHead(head)
	x.drain()
	return overloaded(err)
}

// drain discards the rest of the body, within the deadline of its reading.
func (x *exchange) drain() { _, _ = io.CopyN(io.Discard, &x.content, drainBytes) }

// unread refuses a body that ended early.
func (x *exchange) unread(head []byte, err error) *refusal {
	x.decodeHead(head)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return reject(http.StatusRequestTimeout, metav1.StatusReasonTimeout,
			"the review did not arrive within its own deadline: %d bytes did", len(head))
	}
	return badRequest("the review is cut off after %d bytes", len(head))
}

// decodeHead finds the review that a refusal answers in the head of a body that cannot be decoded.
func (x *exchange) decodeHead(head []byte) {
	x.uid, x.apiVersion, _ = conversion.DecodeHead(head[:min(len(head), headBytes)])
}
