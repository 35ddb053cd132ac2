package stream

import (
	"runtime"
	"sync/atomic"

	"google.golang.org/grpc/mem"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
)

// trackedBytes is the size from which a piece of a body is tracked once the transport has it. Smaller pieces
// need no tracking: a stream holds at most 64 KiB of unwritten bytes (defaultWriteQuota of
// google.golang.org/grpc/internal/transport) and one message.
const trackedBytes = 16 << 10

// trackBuffer makes a buffer for the transport of a piece of a body. The reservation, which is held now, is held until the transport has
// let go of the buffer.
func trackBuffer(reservation *memory.Reservation, piece mem.Buffer) mem.Buffer {
	if reservation == nil || piece.Len() < trackedBytes || !reservation.Retain() {
		return piece
	}
	h := &bufferReservation{reservation: reservation}
	l := &trackedBuffer{h}
	runtime.AddCleanup(l, (*bufferReservation).release, h)
	data := piece.ReadOnlyData()
	return mem.NewBuffer(&data, l)
}

// trackedBuffer is the pool that a buffer returns to. A transport that closes drops queued buffers without freeing them: a
// cleanup of the garbage collector then releases the reservation.
type trackedBuffer struct{ *bufferReservation }

var _ mem.BufferPool = (*trackedBuffer)(nil)

// Get is not used: nothing is taken from here.
func (*trackedBuffer) Get(length int) *[]byte {
	b := make([]byte, length)
	return &b
}

// Put releases the reservation.
func (l *trackedBuffer) Put(*[]byte) { l.release() }

// bufferReservation is the reservation that a tracked buffer holds.
type bufferReservation struct {
	reservation *memory.Reservation
	ended       atomic.Bool
}

// release releases the reservation, once.
func (h *bufferReservation) release() {
	if h.ended.CompareAndSwap(false, true) {
		h.reservation.Release()
	}
}
