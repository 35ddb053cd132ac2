package stream

import (
	"context"

	"google.golang.org/grpc/mem"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// Stream is one host stream as the core needs it. Send and Recv may each be called by one goroutine at a time, and by two
// at once. Both return when Context ends, which End makes it do. Recv returns io.EOF only for a clean end by the host.
type Stream interface {
	// Send writes one frame. The frame is not touched afterwards by either side.
	Send(f *Outgoing) error
	// Recv reads one frame, which is valid until the next call.
	Recv() (*Incoming, error)
	// Context ends with the stream.
	Context() context.Context
	// End ends the stream's context, in the middle of whatever it does. It may be called at any time, and more than once.
	End()
}

// Outgoing is one frame for a host: either a message, or a frame that is encoded already, in parts.
type Outgoing struct {
	// Message is a control frame; nil for everything else.
	Message *hostv1.ConnectResponse
	// Parts are, one after the other, an encoded ConnectResponse.
	Parts []Part

	few [2]Part
}

// Part is one review, or a part of one, on the wire.
type Part struct {
	// Head belongs to this frame alone.
	Head []byte
	// Body follows it. Reviews are encoded once for all hosts: it is shared and never written, and references to it are not counted.
	Body mem.BufferSlice
	// Reservation accounts for Body; nil without a ledger. It is held until Send has returned; a stream that needs
	// Body for longer retains it.
	Reservation *memory.Reservation
}

func (f *Outgoing) release() {
	for i := range f.Parts {
		f.Parts[i].Reservation.Release()
	}
}
