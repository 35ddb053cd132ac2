package hostsdk

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// Numbers of fields of ConnectResponse whose frames are not decoded as a whole.
const (
	reviewField  = 2
	reviewsField = 11
	chunkField   = 12
)

// frame is what came from a dispatcher. Exactly one of its fields is set; a message without a frame is of an unknown type.
type frame struct {
	reviews []review
	chunk   *chunk
	message *hostv1.ConnectResponse // any other
}

// unknown says that the frame is of a type that this SDK does not know.
func (f *frame) unknown() bool { return f.message != nil && f.message.GetFrame() == nil }

// name is the name of the frame's type.
func (f *frame) name() string {
	switch {
	case f.reviews != nil:
		return "Review"
	case f.chunk != nil:
		return "Chunk"
	default:
		return strings.TrimPrefix(fmt.Sprintf("%T", f.message.GetFrame()), "*hostv1.ConnectResponse_")
	}
}

// review is a Review whose request is checked when a handler runs, not by the reader of the stream: what waits behind a
// large one is not held up by it. It keeps the frame that it came in.
type review struct {
	call        uint64
	hooks       []hookCall
	traceparent string
	tracestate  string
	request     request

	one  [1]hookCall // hooks, as long as there is one
	live liveCall    // of the state
}

// hookCall is a HookCall. Its bytes are the frame's.
type hookCall struct {
	name          []byte
	configuration []byte
	span          []byte
	stage         admissionv1.Stage
	mode          hostv1.Mode
	remaining     uint32 // ms
	round         uint32
}

// chunk is a Chunk. Its data is the frame's.
type chunk struct {
	call  uint64
	total uint64
	hooks uint32
	data  []byte
}

// decodeFrame reads an encoded ConnectResponse, which it keeps. What dispatchers write is split by hand; whatever else the
// encoding allows (fields that are unknown, or come twice) is left to the protobuf library.
func decodeFrame(encoded []byte) (*frame, error) {
	number, body, ok := onlyField(encoded)
	if ok {
		switch number { //nolint:exhaustive // numbers of fields are no enumeration
		case reviewField:
			if r := make([]review, 1); r[0].split(body) {
				return &frame{reviews: r}, nil
			}
		case reviewsField:
			if len(body) > maxWireBytes {
				return nil, fmt.Errorf("a frame of several reviews has %d bytes, this host takes %d", len(body), maxWireBytes)
			}
			if reviews, ok := splitReviews(body); ok {
				return &frame{reviews: reviews}, nil
			}
		case chunkField:
			c := &chunk{}
			if c.split(body) {
				return &frame{chunk: c}, nil
			}
		}
	}
	m := &hostv1.ConnectResponse{}
	if err := proto.Unmarshal(encoded, m); err != nil {
		return nil, errors.New("a frame cannot be decoded")
	}
	return frameOf(m), nil
}

// frameOf is a frame that was decoded as a whole.
func frameOf(m *hostv1.ConnectResponse) *frame {
	switch f := m.GetFrame().(type) {
	case *hostv1.ConnectResponse_Review:
		return &frame{reviews: reviewsOf(f.Review)}
	case *hostv1.ConnectResponse_Reviews:
		return &frame{reviews: reviewsOf(f.Reviews.GetReviews()...)}
	case *hostv1.ConnectResponse_Chunk:
		c := f.Chunk
		return &frame{chunk: &chunk{c.GetCallId(), c.GetTotalBytes(), c.GetHooks(), c.GetData()}}
	default:
		return &frame{message: m}
	}
}

// reviewsOf are reviews that were decoded as a whole.
func reviewsOf(messages ...*hostv1.Review) []review {
	reviews := make([]review, len(messages))
	for i, m := range messages {
		r := &reviews[i]
		r.call, r.traceparent, r.tracestate = m.GetCallId(), m.GetTraceparent(), m.GetTracestate()
		r.request.present = m.GetRequest() != nil
		r.request.decoded.Store(m.GetRequest())
		for _, h := range m.GetHooks() {
			r.hooks = append(r.hooks, hookCall{
				name: []byte(h.GetName()), configuration: []byte(h.GetConfiguration()), span: h.GetSpanId(),
				stage: h.GetStage(), mode: h.GetMode(), remaining: h.GetRemainingMs(), round: h.GetRound(),
			})
		}
	}
	return reviews
}

// decodeReview reads an encoded Review, which it keeps.
func decodeReview(encoded []byte) ([]review, error) {
	if r := make([]review, 1); r[0].split(encoded) {
		return r, nil
	}
	m := &hostv1.Review{}
	if err := proto.Unmarshal(encoded, m); err != nil {
		return nil, errors.New("it cannot be decoded")
	}
	return reviewsOf(m), nil
}

// splitReviews splits a Reviews. false leaves it to the library, here and in all that follows.
func splitReviews(encoded []byte) ([]review, bool) {
	n := 0
	for rest := encoded; len(rest) > 0; n++ {
		f, _, size := nextField(rest)
		if size == 0 || f.number != memberField || !f.isBytes {
			return nil, false
		}
		rest = rest[size:]
	}
	reviews := make([]review, n)
	for i := range reviews {
		_, body, size := nextField(encoded)
		if !reviews[i].split(body) {
			return nil, false
		}
		encoded = encoded[size:]
	}
	return reviews, true
}

// split reads a Review. Of one that asks far too many hooks it leaves the rest unread: nobody may be asked that many.
func (r *review) split(encoded []byte) bool {
	r.hooks = r.one[:0]
	var seen uint64
	for len(encoded) > 0 {
		f, body, size := nextField(encoded)
		if size == 0 || f.number > 15 || f.number != 2 && seen&(1<<f.number) != 0 {
			return false
		}
		encoded = encoded[size:]
		seen |= 1 << f.number
		switch {
		case f.number == 1 && !f.isBytes:
			r.call = f.value
		case f.number == 2 && f.isBytes:
			var h hookCall
			if !h.split(body) {
				return false
			}
			if r.hooks = append(r.hooks, h); len(r.hooks) > maxReviewHooks {
				return true
			}
		case f.number == 3 && f.isText(body):
			r.traceparent = string(body)
		case f.number == 4 && f.isText(body):
			r.tracestate = string(body)
		case f.number == 15 && f.isBytes:
			r.request.present, r.request.encoded = true, body
		default:
			return false
		}
	}
	return true
}

// split reads a HookCall.
func (h *hookCall) split(encoded []byte) bool {
	for len(encoded) > 0 {
		f, body, size := nextField(encoded)
		encoded = encoded[size:]
		switch {
		case size == 0:
			return false
		case f.number == 1 && f.isText(body):
			h.name = body
		case f.number == 2 && !f.isBytes:
			h.stage = admissionv1.Stage(f.value)
		case f.number == 3 && !f.isBytes:
			h.remaining = uint32(f.value)
		case f.number == 4 && !f.isBytes:
			h.round = uint32(f.value)
		case f.number == 5 && !f.isBytes:
			h.mode = hostv1.Mode(f.value)
		case f.number == 6 && f.isText(body): // reservation: of no use to handlers yet
		case f.number == 7 && f.isText(body):
			h.configuration = body
		case f.number == 8 && f.isBytes:
			h.span = body
		default:
			return false
		}
	}
	return true
}

// split reads a Chunk.
func (c *chunk) split(encoded []byte) bool {
	for len(encoded) > 0 {
		f, body, size := nextField(encoded)
		encoded = encoded[size:]
		switch {
		case size == 0:
			return false
		case f.number == 1 && !f.isBytes:
			c.call = f.value
		case f.number == 2 && !f.isBytes:
			c.total = f.value
		case f.number == 3 && !f.isBytes:
			c.hooks = uint32(f.value)
		case f.number == 15 && f.isBytes:
			c.data = body
		default:
			return false
		}
	}
	return true
}

// field is one field of an encoded message, but for its bytes: small, so that it stays in registers.
type field struct {
	number  protowire.Number
	isBytes bool
	value   uint64 // if it is a number
}

// isText says that the field is a string: protobuf refuses one that is not UTF-8.
func (f field) isText(body []byte) bool { return f.isBytes && utf8.Valid(body) }

// onlyField is the field of a message that consists of one, of bytes.
func onlyField(encoded []byte) (protowire.Number, []byte, bool) {
	f, body, size := nextField(encoded)
	return f.number, body, f.isBytes && size == len(encoded)
}

// nextField is the first field of a message, with its bytes if it has any, and its size, which is 0 when it is of a kind that
// the contract does not use. Most fields have a number below 2,048, and are a number below 16,384 or less than that many
// bytes.
func nextField(encoded []byte) (f field, body []byte, size int) {
	tag, n := shortVarint(encoded)
	value, m := shortVarint(encoded[n:])
	start, number := n+m, protowire.Number(tag>>3)
	switch {
	case n == 0 || m == 0 || number == 0:
		return longField(encoded)
	case protowire.Type(tag&7) == protowire.VarintType:
		return field{number: number, value: value}, nil, start
	case protowire.Type(tag&7) == protowire.BytesType && value <= uint64(len(encoded)-start):
		end := start + int(value)
		return field{number: number, isBytes: true}, encoded[start:end], end
	default:
		return field{}, nil, 0
	}
}

// shortVarint reads a number of one or two bytes; n is 0 when it is longer, or cut off.
func shortVarint(b []byte) (v uint64, n int) {
	switch {
	case len(b) > 0 && b[0] < 1<<7:
		return uint64(b[0]), 1
	case len(b) > 1 && b[1] < 1<<7:
		return uint64(b[0]&0x7f) | uint64(b[1])<<7, 2
	default:
		return 0, 0
	}
}

// longField is nextField for any field.
func longField(encoded []byte) (f field, body []byte, size int) {
	number, kind, n := protowire.ConsumeTag(encoded)
	if n < 0 {
		return field{}, nil, 0
	}
	f.number = number
	m := -1
	switch kind { //nolint:exhaustive // the contract uses no others
	case protowire.VarintType:
		f.value, m = protowire.ConsumeVarint(encoded[n:])
	case protowire.BytesType:
		f.isBytes = true
		body, m = protowire.ConsumeBytes(encoded[n:])
	}
	if m < 0 {
		return field{}, nil, 0
	}
	return f, body, n + m
}
