package hostsdk

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// codec passes frames on as bytes: the session encodes and decodes them.
type codec struct{}

var _ encoding.CodecV2 = codec{}

// Marshal implements [encoding.CodecV2]. v is a pointer to an encoded frame, which does not change any more.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	frame, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("hostsdk: %T is not a frame", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*frame)}, nil
}

// Unmarshal implements [encoding.CodecV2]. gRPC takes its buffers back: handlers see this copy.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	frame, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("hostsdk: %T is not a frame", v)
	}
	*frame = data.Materialize()
	return nil
}

// Name implements [encoding.CodecV2]: on the wire it is ordinary protobuf.
func (codec) Name() string { return "proto" }

// connect opens a session's stream over a connection.
func connect(ctx context.Context, conn grpc.ClientConnInterface) (Stream, error) {
	stream, err := conn.NewStream(ctx, &hostv1.HostService_ServiceDesc.Streams[0], hostv1.HostService_Connect_FullMethodName,
		grpc.ForceCodecV2(codec{}))
	if err != nil {
		return nil, err
	}
	return &grpcStream{ClientStream: stream}, nil
}

// grpcStream is a gRPC stream of encoded frames.
type grpcStream struct {
	grpc.ClientStream

	out []byte // the frame that Send hands over; one goroutine sends
}

// Send implements [Stream].
func (s *grpcStream) Send(frame []byte) error {
	s.out = frame
	err := s.SendMsg(&s.out)
	s.out = nil // It may be large.
	return err
}

// Recv implements [Stream].
func (s *grpcStream) Recv() ([]byte, error) {
	var frame []byte
	err := s.RecvMsg(&frame)
	return frame, err
}
