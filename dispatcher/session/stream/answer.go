package stream

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
)

// Answer is a message of another service of the server, which is accounted for until the transport has written it. gRPC takes an answer as sent
// before its reader has read anything.
type Answer struct {
	// Message is the answer.
	Message proto.Message
	// Reservation accounts for it; it is the codec's, which releases it.
	Reservation *memory.Reservation
}

func (a *Answer) marshal() (mem.BufferSlice, error) {
	defer a.Reservation.Release()
	raw, err := proto.Marshal(a.Message)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{trackBuffer(a.Reservation, mem.SliceBuffer(raw))}, nil
}
