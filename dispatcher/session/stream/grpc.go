package stream

import (
	"context"

	"google.golang.org/grpc"
)

// OverGRPC is a stream of a gRPC server that uses [Codec]. end ends its context.
func OverGRPC(s grpc.ServerStream, end context.CancelFunc) Stream {
	return &grpcStream{ServerStream: s, end: end}
}

// grpcStream is a gRPC stream with frames that [Codec] encodes and decodes.
type grpcStream struct {
	grpc.ServerStream

	end context.CancelFunc
	in  received // the last frame
}

// End implements [Stream].
func (s *grpcStream) End() { s.end() }

// Send implements [Stream].
func (s *grpcStream) Send(f *Outgoing) error { return s.SendMsg(f) }

// Recv implements [Stream].
func (s *grpcStream) Recv() (*Incoming, error) {
	if err := s.RecvMsg(&s.in); err != nil {
		return nil, err
	}
	return &s.in.Incoming, s.in.err
}
