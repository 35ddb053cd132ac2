package hostsdk

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// frame is a ConnectResponse with exactly one field set. A message without a frame is of an unknown type.
type frame struct {
	reviews []review
	chunk   *wire.ChunkView
	message *hostv1.ConnectResponse // any other
}

func (f *frame) unknown() bool { return f.message != nil && f.message.GetFrame() == nil }

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

// review is a Review whose request is checked when a handler runs, not by the reader of the stream: a large request does not
// hold up the frames behind it. It keeps the frame that it came in.
type review struct {
	wire.ReviewView

	request request
	live    liveCall // of the state
}

// decodeFrame reads an encoded ConnectResponse, which it keeps. The frames that dispatchers write are split by hand; all else that the
// encoding allows (unknown fields, fields that come twice) is left to the protobuf library.
func decodeFrame(encoded []byte) (*frame, error) {
	number, body, ok := wire.Only(encoded)
	if ok {
		switch number { //nolint:exhaustive // numbers of fields are no enumeration
		case wire.ConnectResponseReview:
			if r := make([]review, 1); r[0].split(body) {
				return &frame{reviews: r}, nil
			}
		case wire.ConnectResponseReviews:
			if len(body) > maxWireBytes {
				return nil, fmt.Errorf("a frame of several reviews has %d bytes, this host takes %d", len(body), maxWireBytes)
			}
			if reviews, ok := splitReviews(body); ok {
				return &frame{reviews: reviews}, nil
			}
		case wire.ConnectResponseChunk:
			c := &wire.ChunkView{}
			if c.Read(body) {
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

func frameOf(m *hostv1.ConnectResponse) *frame {
	switch f := m.GetFrame().(type) {
	case *hostv1.ConnectResponse_Review:
		return &frame{reviews: reviewsOf(f.Review)}
	case *hostv1.ConnectResponse_Reviews:
		return &frame{reviews: reviewsOf(f.Reviews.GetReviews()...)}
	case *hostv1.ConnectResponse_Chunk:
		c := f.Chunk
		return &frame{chunk: &wire.ChunkView{CallID: c.GetCallId(), Total: c.GetTotalBytes(), Hooks: c.GetHooks(), Data: c.GetData()}}
	default:
		return &frame{message: m}
	}
}

// reviewsOf takes over reviews that the library decoded.
func reviewsOf(messages ...*hostv1.Review) []review {
	reviews := make([]review, len(messages))
	for i, m := range messages {
		r := &reviews[i]
		r.CallID, r.Traceparent, r.Tracestate = m.GetCallId(), []byte(m.GetTraceparent()), []byte(m.GetTracestate())
		r.request.present = m.GetRequest() != nil
		r.request.decoded.Store(m.GetRequest())
		for _, h := range m.GetHooks() {
			r.Hooks = append(r.Hooks, wire.HookCallView{
				Name: []byte(h.GetName()), Configuration: []byte(h.GetConfiguration()), Span: h.GetSpanId(),
				Stage: h.GetStage(), Mode: h.GetMode(), RemainingMS: h.GetRemainingMs(), Round: h.GetRound(),
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

// splitReviews splits a Reviews. false leaves it to the library, also in split.
func splitReviews(encoded []byte) ([]review, bool) {
	n := 0
	for rest := encoded; len(rest) > 0; n++ {
		f, _, size := wire.Next(rest)
		if size == 0 || f.Number != wire.ReviewsReviews || !f.IsBytes {
			return nil, false
		}
		rest = rest[size:]
	}
	reviews := make([]review, n)
	for i := range reviews {
		_, body, size := wire.Next(encoded)
		if !reviews[i].split(body) {
			return nil, false
		}
		encoded = encoded[size:]
	}
	return reviews, true
}

// split reads a Review. It refuses a review that calls too many hooks, and leaves its rest unread.
func (r *review) split(encoded []byte) bool {
	if !r.Read(encoded, maxReviewHooks) {
		return false
	}
	r.request.present, r.request.encoded = r.Request != nil, r.Request
	return true
}
