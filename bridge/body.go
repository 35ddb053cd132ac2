package bridge

import (
	"errors"
	"io"
	"net/http"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const (
	// firstChunk is the first buffer for a body whose length is not announced; it doubles from there.
	firstChunk = 32 << 10
	// headBytes is how much of a review is looked at for its uid when the whole cannot be read. API servers write kind,
	// apiVersion and uid first.
	headBytes = 64 << 10
	// drainBytes is how much of a review that is not wanted is read and thrown away before it is answered. A caller that
	// is still sending when the connection closes may never see the answer: a denial that gets lost is a failure of the
	// entry, and a connection that gets lost costs a handshake when there is least time for it. 48 MiB is more than an API
	// server can send: two objects of 3 MiB whose every byte takes six in JSON are 36 MiB, and a third for everything
	// around them.
	drainBytes = 48 << 20
)

// read reads the whole body into a buffer of its own, which the objects of the review will refer to for as long as
// anybody needs them: it is never reused. What it takes is booked before it is there.
func (x *exchange) read() *refusal {
	limit := x.bridge.options.MaxBodyBytes
	read := max(0, x.request.ContentLength)
	if read > limit {
		read = headBytes
	}
	var err error
	if x.lease, err = x.bridge.options.Memory.Reserve(x.cluster, takes(x.stage, read)); err != nil {
		return x.noRoom(err)
	}
	if x.request.ContentLength > limit {
		return x.readHead()
	}
	var body []byte
	if x.request.ContentLength >= 0 {
		body, err = readExactly(x.request.Body, x.request.ContentLength)
	} else {
		body, err = readGrowing(x.request.Body, limit, x.growth())
	}
	switch {
	case err != nil && overBudget(err):
		return x.noRoom(err)
	case err != nil:
		return x.unread(body, err)
	case int64(len(body)) > limit:
		return x.overLimit(body)
	}
	x.body = body
	return nil
}

// overBudget says whether an error is that there is no memory now.
func overBudget(err error) bool {
	var full *memory.FullError
	return errors.As(err, &full)
}

// takes is what a review with a body of so many bytes is going to take. Where hooks may patch there has to be room for that
// from the start: when a patch is there, it is too late to find that there is none.
func takes(stage admissionv1.Stage, body int64) int64 { return ReviewBytes + body*perByte(stage) }

// perByte is how many bytes a review takes for each of its body.
func perByte(stage admissionv1.Stage) int64 {
	if stage == admissionv1.Stage_STAGE_VALIDATE {
		return 1
	}
	return 1 + review.PatchedPerByte
}

// growth books what a body of unknown length turns out to be.
func (x *exchange) growth() func(bytes int64) error {
	return func(bytes int64) error { return x.lease.Grow(bytes * perByte(x.stage)) }
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

// readHead reads the front of a body that is announced to be too large.
func (x *exchange) readHead() *refusal {
	head, err := readExactly(x.request.Body, headBytes)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return x.unread(head, err)
	}
	return x.overLimit(head)
}

// overLimit throws away the rest of a body and refuses it.
func (x *exchange) overLimit(head []byte) *refusal {
	x.know(head)
	x.drain()
	return tooLarge(x.bridge.options.MaxBodyBytes)
}

// noRoom throws away a body that there is no memory for, and first what was read of it.
func (x *exchange) noRoom(err error) *refusal {
	x.lease.Release()
	x.lease = nil
	x.drain()
	return overloaded(err)
}

// drain throws away what is left of the body, within the deadline of its reading.
func (x *exchange) drain() { _, _ = io.CopyN(io.Discard, x.request.Body, drainBytes) }

// unread refuses a body that ended before its end.
func (x *exchange) unread(head []byte, err error) *refusal {
	x.know(head)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return reject(http.StatusRequestTimeout, metav1.StatusReasonTimeout,
			"the review did not arrive within its own deadline: %d bytes did", len(head))
	}
	return badRequest("the review is cut off after %d bytes", len(head))
}

// know finds out whom to answer from the front of a review that cannot be decoded.
func (x *exchange) know(head []byte) {
	x.uid, x.apiVersion, _ = conversion.DecodeHead(head[:min(len(head), headBytes)])
}
