package bare

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// The fields of the host protocol that carry reviews and verdicts.
const (
	fieldReview, fieldReviews, fieldChunk  = 2, 11, 12 // ConnectResponse
	fieldVerdict, fieldVerdicts            = 2, 7      // ConnectRequest
	fieldCall, fieldHooks                  = 1, 2      // Review
	fieldTotal, fieldChunkHooks, fieldData = 2, 3, 15  // Chunk
	fieldIndex, fieldResponse              = 2, 3      // Verdict
	fieldAllowed                           = 2         // AdmissionResponse
	fieldVerdictsVerdict                   = 1         // Verdicts
)

var errFrame = errors.New("a frame is not what the contract says")

// call is a review that has to be answered.
type call struct {
	id    uint64
	hooks int
}

// verdict is what ends one call of one hook.
type verdict struct {
	call uint64
	hook int
}

// frame looks for the reviews in a frame, and hands everything else on.
func (s *session) frame(raw []byte) error {
	number, kind, n := protowire.ConsumeTag(raw)
	if n < 0 || kind != protowire.BytesType {
		return errFrame
	}
	body, m := protowire.ConsumeBytes(raw[n:])
	if m < 0 {
		return errFrame
	}
	switch int(number) {
	case fieldReview:
		return s.review(body)
	case fieldReviews:
		return fields(body, func(_ protowire.Number, _ uint64, review []byte) error { return s.review(review) })
	case fieldChunk:
		return s.chunk(body)
	}
	return s.control(raw)
}

// review takes the id and the number of hooks out of a review, and reads nothing else.
func (s *session) review(raw []byte) error {
	var c call
	err := fields(raw, func(number protowire.Number, value uint64, _ []byte) error {
		switch int(number) {
		case fieldCall:
			c.id = value
		case fieldHooks:
			c.hooks++
		}
		return nil
	})
	s.calls = append(s.calls, c)
	return err
}

// chunk counts the bytes of a large review until it is complete.
func (s *session) chunk(raw []byte) error {
	var c call
	var total, length int
	err := fields(raw, func(number protowire.Number, value uint64, data []byte) error {
		switch int(number) {
		case fieldCall:
			c.id = value
		case fieldTotal:
			total = int(value)
		case fieldChunkHooks:
			c.hooks = int(value)
		case fieldData:
			length = len(data)
		}
		return nil
	})
	if err != nil {
		return err
	}
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

// fields calls f with each field of a message: its number, and its value as a number or as bytes.
func fields(raw []byte, f func(number protowire.Number, value uint64, data []byte) error) error {
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return errFrame
		}
		raw = raw[n:]
		var value uint64
		var data []byte
		switch kind {
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(raw)
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(raw)
		default:
			n = protowire.ConsumeFieldValue(number, kind, raw)
		}
		if n < 0 {
			return errFrame
		}
		if err := f(number, value, data); err != nil {
			return err
		}
		raw = raw[n:]
	}
	return nil
}

// encode is a frame with permissions.
func encode(verdicts []verdict) []byte {
	if len(verdicts) == 1 {
		return appendVerdict(nil, fieldVerdict, verdicts[0])
	}
	var all []byte
	for _, v := range verdicts {
		all = appendVerdict(all, fieldVerdictsVerdict, v)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, fieldVerdicts, protowire.BytesType), all)
}

// appendVerdict appends a permission as a field of a message.
func appendVerdict(to []byte, field protowire.Number, v verdict) []byte {
	var buffer [32]byte
	m := protowire.AppendVarint(append(buffer[:0], fieldCall<<3), v.call)
	if v.hook > 0 {
		m = protowire.AppendVarint(append(m, fieldIndex<<3), uint64(v.hook))
	}
	m = append(m, fieldResponse<<3|byte(protowire.BytesType), 2, fieldAllowed<<3, 1)
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
