package session

import (
	"encoding/hex"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// The numbers of the fields of ConnectResponse, Review, HookCall and Chunk that are encoded here by hand: a frame is a few
// dozen bytes around a body that exists already, and messages would be made only to be taken apart. A test compares all
// of it with the generated code.
const (
	frameReview  protowire.Number = 2
	frameReviews protowire.Number = 11
	frameChunk   protowire.Number = 12

	// reviewsTag is the tag of Reviews.reviews.
	reviewsTag = 1<<3 | byte(protowire.BytesType)

	reviewCallID      protowire.Number = 1
	reviewHooks       protowire.Number = 2
	reviewTraceparent protowire.Number = 3
	reviewTracestate  protowire.Number = 4

	callName          protowire.Number = 1
	callStage         protowire.Number = 2
	callRemaining     protowire.Number = 3
	callRound         protowire.Number = 4
	callMode          protowire.Number = 5
	callConfiguration protowire.Number = 7
	callSpan          protowire.Number = 8

	chunkCallID protowire.Number = 1
	chunkTotal  protowire.Number = 2
	chunkHooks  protowire.Number = 3
	chunkData   protowire.Number = 15
)

const (
	// prefixBytes is more than a tag and a length take.
	prefixBytes = 16
	// scalarBytes is more than the numbers, tags and lengths of a Review or of a HookCall take.
	scalarBytes = 48
	// traceparentBytes is the length of a W3C traceparent.
	traceparentBytes = 55
)

// headBound is at least the number of bytes that the head of a frame takes, whenever it is encoded.
func headBound(shared *body, tickets []*ticket) int {
	n := prefixBytes + scalarBytes
	if shared.parent.IsValid() {
		n += traceparentBytes + len(shared.parent.TraceState().String())
	}
	for _, t := range tickets {
		id := &t.call().Hook.ID
		n += scalarBytes + len(id.Name) + len(id.Configuration)
	}
	return n
}

// appendHead appends a Review without its request: what differs from host to host.
func appendHead(b []byte, f *frame, now time.Time) []byte {
	b = appendNumber(b, reviewCallID, f.id)
	for _, t := range f.tickets {
		b = appendHookCall(b, t, now)
	}
	span := f.body.parent
	if !span.IsValid() {
		return b
	}
	of, id := span.TraceID(), span.SpanID()
	b = protowire.AppendVarint(protowire.AppendTag(b, reviewTraceparent, protowire.BytesType), traceparentBytes)
	b = hex.AppendEncode(append(b, "00-"...), of[:])
	b = hex.AppendEncode(append(b, '-'), id[:])
	b = hex.AppendEncode(append(b, '-'), []byte{byte(span.TraceFlags())})
	return appendText(b, reviewTracestate, span.TraceState().String())
}

// appendHookCall appends a hook's part of a Review.
func appendHookCall(b []byte, t *ticket, now time.Time) []byte {
	c := t.call()
	b = protowire.AppendTag(b, reviewHooks, protowire.BytesType)
	b = append(b, 0) // the length, which is mostly one byte
	start := len(b)
	b = appendText(b, callName, c.Hook.ID.Name)
	b = appendNumber(b, callStage, uint64(c.Hook.ID.Stage))
	b = appendNumber(b, callRemaining, uint64(millis(c.Deadline.Sub(now))))
	b = appendNumber(b, callRound, uint64(c.Round))
	b = appendNumber(b, callMode, uint64(modeOf(t.mode())))
	b = appendText(b, callConfiguration, c.Hook.ID.Configuration)
	if c.Span.IsValid() {
		id := c.Span.SpanID()
		b = protowire.AppendBytes(protowire.AppendTag(b, callSpan, protowire.BytesType), id[:])
	}
	length := uint64(len(b) - start)
	if length < 1<<7 {
		b[start-1] = byte(length)
		return b
	}
	var varint [prefixBytes]byte
	return slices.Replace(b, start-1, start, protowire.AppendVarint(varint[:0], length)...)
}

// modeOf is a mode on the wire.
func modeOf(m review.Mode) hostv1.Mode {
	switch m {
	case review.Speculative:
		return hostv1.Mode_MODE_SPECULATIVE
	case review.Hedge:
		return hostv1.Mode_MODE_HEDGE
	case review.Shadow:
		return hostv1.Mode_MODE_SHADOW
	case review.Decide:
	}
	return hostv1.Mode_MODE_DECIDE
}

// appendNumber appends a number, unless it is zero.
func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

// appendText appends a text, unless it is empty.
func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

// prefixed returns b from the place where a field of the given length begins, whose content starts at start: b has room
// for tag and length right before it.
func prefixed(b []byte, start int, field protowire.Number, length int) []byte {
	var prefix [prefixBytes]byte
	p := protowire.AppendVarint(protowire.AppendTag(prefix[:0], field, protowire.BytesType), uint64(length))
	copy(b[start-len(p):], p)
	return b[start-len(p):]
}

// body is the request of a batch as the transport takes it: made once for all hosts.
type body struct {
	buffers mem.BufferSlice
	length  int // bytes
	lease   *memory.Reservation
	parent  trace.SpanContext // of the review
}

// newBody is the body of a batch.
func newBody(b *dispatcher.Batch) *body {
	pieces := b.Body.Buffers()
	buffers := make(mem.BufferSlice, len(pieces))
	for i, p := range pieces {
		buffers[i] = mem.SliceBuffer(p)
	}
	return &body{buffers: buffers, length: b.Body.Len(), lease: b.Reservation}
}

// encodeReview encodes a frame with one review: its head, and behind it the body that all hosts share, as one
// length-delimited field. Concatenated they are a ConnectResponse for every protobuf implementation. The head is put into
// room, if it is large enough; what is left of that is returned.
func encodeReview(f *frame, room []byte, now time.Time) (p Part, rest []byte) {
	if cap(room) < f.bound {
		room = make([]byte, f.bound)
	}
	b := appendHead(room[:prefixBytes], f, now)
	b = prefixed(b, prefixBytes, frameReview, len(b)-prefixBytes+f.body.length)
	return Part{Head: slices.Clip(b), Body: f.body.buffers, Lease: f.body.lease}, b[len(b):]
}

// newBatch is a frame for about n reviews, with a place for what comes before several of them.
func newBatch(n int) *Outgoing {
	f := new(Outgoing)
	if f.Parts = f.few[:1]; n >= len(f.few) {
		f.Parts = make([]Part, 1, 1+n)
	}
	return f
}

// close makes the reviews that were put into a frame one frame. There are none in nil.
func (f *Outgoing) close() *Outgoing {
	if f == nil {
		return nil
	}
	if len(f.Parts) == 2 {
		f.Parts = f.Parts[1:]
		return f
	}
	reviews, size := f.Parts[1:], 0
	for _, p := range reviews {
		p.Head[0] = reviewsTag // in the place of another one of the same length
		size += p.size()
	}
	head := protowire.AppendTag(make([]byte, 0, prefixBytes), frameReviews, protowire.BytesType)
	f.Parts[0].Head = protowire.AppendVarint(head, uint64(size))
	return f
}

// size is how many bytes a part has.
func (p *Part) size() int { return len(p.Head) + p.Body.Len() }

// millis is a duration on the wire: whole milliseconds, rounded down, never negative.
func millis(d time.Duration) uint32 {
	return uint32(min(max(0, d.Milliseconds()), int64(^uint32(0))))
}
