package stream

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Codec returns the codec that a gRPC server for hosts is forced to use: review frames are handed over as the slices they
// consist of, everything else is ordinary protobuf.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

// codec decorates the standard one.
type codec struct{ encoding.CodecV2 }

// Marshal implements [encoding.CodecV2]. The buffers are owned by the garbage collector: bodies are shared by all hosts
// of a review. Where they are accounted for, the reservation is released when the transport lets go of them.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if a, ok := v.(*Answer); ok {
		return a.marshal()
	}
	out, ok := v.(*Outgoing)
	switch {
	case !ok:
		return c.CodecV2.Marshal(v)
	case out.Message != nil:
		return c.CodecV2.Marshal(out.Message)
	}
	n := 0
	for _, p := range out.Parts {
		n += 1 + len(p.Body)
	}
	buffers := make(mem.BufferSlice, 0, n)
	for _, p := range out.Parts {
		buffers = append(buffers, mem.SliceBuffer(p.Head))
		for _, b := range p.Body {
			buffers = append(buffers, trackBuffer(p.Reservation, b))
		}
	}
	return buffers, nil
}

// Unmarshal implements [encoding.CodecV2]. A frame of a host that cannot be read is known by its error, which [Stream]
// returns.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*received)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if len(data) == 1 {
		in.err = in.Decode(data[0].ReadOnlyData())
		return nil
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	in.err = in.Decode(whole.ReadOnlyData())
	return nil
}

// received is a frame, or why it is none. Of an error by a codec, gRPC passes only the text on.
type received struct {
	Incoming

	err error
}
