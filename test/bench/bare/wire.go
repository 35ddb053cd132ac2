package bare

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/portcullis-mesh/portcullis/internal/wire"
)

var errFrame = errors.New("a frame breaks the contract")

// call is a review that has to be answered.
type call struct {
	id    uint64
	hooks int
}

// verdict ends one call of one hook.
type verdict struct {
	call uint64
	hook int
}

// frame looks for the reviews in a frame, and hands everything else on.
func (s *session) frame(raw []byte) error {
	number, body, ok := wire.Only(raw)
	if !ok {
		return errFrame
	}
	switch number { //nolint:exhaustive // numbers of fields are no enumeration
	case wire.ConnectResponseReview:
		return s.review(body)
	case wire.ConnectResponseReviews:
		return wire.Fields(body, func(_ wire.Field, review []byte) error { return s.review(review) })
	case wire.ConnectResponseChunk:
		return s.chunk(body)
	}
	return s.control(raw)
}

// review takes the id and the number of hooks out of a review, and reads nothing else.
func (s *session) review(raw []byte) error {
	var c call
	err := wire.Fields(raw, func(f wire.Field, _ []byte) error {
		switch f.Number { //nolint:exhaustive // numbers of fields are no enumeration
		case wire.ReviewCallID:
			c.id = f.Value
		case wire.ReviewHooks:
			c.hooks++
		}
		return nil
	})
	s.calls = append(s.calls, c)
	return err
}

// chunk counts the bytes of a large review until it is complete.
func (s *session) chunk(raw []byte) error {
	var chunk wire.ChunkView
	if !chunk.Read(raw) {
		return errFrame
	}
	c, total, length := call{id: chunk.CallID, hooks: int(chunk.Hooks)}, int(chunk.Total), len(chunk.Data)
	if s.partial.missed == 0 {
		s.partial = partial{call: c, missed: total}
	}
	if s.partial.call != c || length == 0 || length > s.partial.missed {
		return fmt.Errorf("%w: chunks of call %d in those of call %d", errFrame, c.id, s.partial.call.id)
	}
	if s.partial.missed -= length; s.partial.missed == 0 {
		s.calls = append(s.calls, c)
	}
	return nil
}

// encode is a frame with permissions.
func encode(verdicts []verdict) []byte {
	if len(verdicts) == 1 {
		return appendVerdict(nil, wire.ConnectRequestVerdict, verdicts[0])
	}
	var all []byte
	for _, v := range verdicts {
		all = appendVerdict(all, wire.VerdictsVerdicts, v)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, wire.ConnectRequestVerdicts, protowire.BytesType), all)
}

// appendVerdict appends a permission as a field of a message.
func appendVerdict(to []byte, field protowire.Number, v verdict) []byte {
	var buffer [32]byte
	m := wire.AppendAllow(buffer[:0], v.call, uint32(v.hook), 0, 0)
	return protowire.AppendBytes(protowire.AppendTag(to, field, protowire.BytesType), m)
}

// incoming is a frame that came.
type incoming struct{ buffer mem.Buffer }

func (i *incoming) bytes() []byte { return i.buffer.ReadOnlyData() }
func (i *incoming) free()         { i.buffer.Free() }

// codec hands frames over as bytes.
type codec struct{}

var _ encoding.CodecV2 = codec{}

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	frame, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("bare: %T is no frame", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(frame)}, nil
}

// Unmarshal implements encoding.CodecV2. The frame is one piece: it is copied only if it came in several.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*incoming)
	if !ok {
		return fmt.Errorf("bare: %T takes no frame", v)
	}
	in.buffer = data.MaterializeToBuffer(mem.DefaultBufferPool())
	return nil
}

// Name implements encoding.CodecV2.
func (codec) Name() string { return "bytes" }
