package stream

import (
	"slices"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// headBound is at least the number of bytes that the head of a frame takes, whenever it is encoded.
func headBound(tickets []Ticket) int {
	n := wire.HeadBound
	for _, t := range tickets {
		id := &t.Call().Hook.ID
		n += wire.HookCallBound(id.Name, id.Configuration)
	}
	return n
}

// appendHead appends a Review without its body: the fields that differ from host to host.
func appendHead(b []byte, f *reviewFrame, now time.Time) []byte {
	b = wire.AppendNumber(b, wire.ReviewCallID, f.id)
	for _, t := range f.tickets {
		c := t.Call()
		b = wire.AppendHookCall(b, &wire.HookCall{
			Name: c.Hook.ID.Name, Configuration: c.Hook.ID.Configuration, Stage: c.Hook.ID.Stage, Mode: modeOf(c.Mode),
			RemainingMS: wire.Milliseconds(c.Deadline.Sub(now)), Round: c.Round, Span: c.Span,
		})
	}
	return b
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

// Body is the part of a batch that all hosts get, as the transport takes it. It is made once, in one piece of memory.
type Body struct {
	buffers     mem.BufferSlice
	length      int    // bytes
	cluster     string // that the review comes from
	reservation *memory.Reservation

	pieces [wire.MaxPieces]mem.SliceBuffer // pointed to by few
	few    [wire.MaxPieces]mem.Buffer      // buffers
}

// NewBody makes the body of a batch.
func NewBody(b *review.CallSet) *Body {
	body := &Body{length: b.Body.Len(), cluster: b.Request.GetCluster(), reservation: b.Reservation}
	for i, p := range b.Body.Buffers() {
		body.pieces[i] = p
		body.few[i] = &body.pieces[i]
	}
	body.buffers = body.few[:len(b.Body.Buffers())]
	return body
}

// encodeReview encodes a frame with one review: its head, and behind it the body that all hosts share, as one
// length-delimited field. Concatenated they are a ConnectResponse for every protobuf implementation. The head is put into
// scratch, if it is large enough; the rest of that is returned.
func encodeReview(f *reviewFrame, scratch []byte, now time.Time) (p Part, rest []byte) {
	if cap(scratch) < f.bound {
		scratch = make([]byte, f.bound)
	}
	b := appendHead(scratch[:wire.PrefixBytes], f, now)
	b = wire.Prefix(b, wire.PrefixBytes, wire.ConnectResponseReview, len(b)-wire.PrefixBytes+f.body.length)
	return Part{Head: slices.Clip(b), Body: f.body.buffers, Reservation: f.body.reservation}, b[len(b):]
}

// memberTag is the tag of Reviews.reviews, which is as long as the tag of a frame's review.
const memberTag = byte(wire.ReviewsReviews)<<3 | byte(protowire.BytesType)

// newBatch is a frame for about n reviews, with a place for the part that comes before several of them.
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
		p.Head[0] = memberTag // replaces another tag of the same length
		size += p.size()
	}
	head := protowire.AppendTag(make([]byte, 0, wire.PrefixBytes), wire.ConnectResponseReviews, protowire.BytesType)
	f.Parts[0].Head = protowire.AppendVarint(head, uint64(size))
	return f
}

// size is how many bytes a part has.
func (p *Part) size() int { return len(p.Head) + p.Body.Len() }
