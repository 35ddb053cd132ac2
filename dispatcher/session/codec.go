package session

import (
	"fmt"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// reviewField is the number of ConnectResponse.review.
const reviewField = 2

// encode encodes a review frame: its head, and behind it the body that all hosts share, as one length-delimited field.
// Concatenated they are a ConnectResponse for every protobuf implementation.
func encode(head *hostv1.Review, body conversion.Body) (out *Outgoing, size int, err error) {
	first, err := protobuf.Marshal(head)
	if err != nil {
		return nil, 0, fmt.Errorf("encoding the head of a review: %w", err)
	}
	b := make([]byte, 0, len(first)+2*protowire.SizeVarint(1<<28))
	b = protowire.AppendTag(b, reviewField, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(first)+body.Len()))
	b = append(b, first...)
	return &Outgoing{Head: b, Body: body.Buffers()}, len(b) + body.Len(), nil
}

// Codec returns the codec that a gRPC server for hosts is forced to use: review frames are handed over as the slices they
// consist of, everything else is ordinary protobuf.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

// codec decorates the standard one.
type codec struct{ encoding.CodecV2 }

// Marshal implements [encoding.CodecV2]. The buffers are owned by the garbage collector: bodies are shared by all hosts
// of a review. Where they are accounted for, what the transport lets go of is told to the lease.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	out, ok := v.(*Outgoing)
	switch {
	case !ok:
		return c.CodecV2.Marshal(v)
	case out.Message != nil:
		return c.CodecV2.Marshal(out.Message)
	}
	buffers := make(mem.BufferSlice, 0, 1+len(out.Body))
	buffers = append(buffers, mem.SliceBuffer(out.Head))
	for _, b := range out.Body {
		buffers = append(buffers, lend(out.Lease, b))
	}
	return buffers, nil
}

// Unmarshal implements [encoding.CodecV2]. The server may take larger messages from others than hosts may send.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if _, ok := v.(*hostv1.ConnectRequest); ok && data.Len() > MaxVerdictBytes {
		return fmt.Errorf("a frame of %d bytes, at most %d are taken", data.Len(), MaxVerdictBytes)
	}
	return c.CodecV2.Unmarshal(data, v)
}
