package session

import (
	"fmt"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

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
// of a review. Where they are accounted for, what the transport lets go of is told to the lease.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
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
			buffers = append(buffers, lend(p.Lease, b))
		}
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
