package session

import (
	"runtime"
	"sync/atomic"

	"google.golang.org/grpc/mem"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
)

// lentBytes is the size from which it is followed what becomes of a piece of a body once the transport has it. Of smaller
// ones it keeps little: what a stream has been given and not yet written is at most 64 KiB (defaultWriteQuota of
// google.golang.org/grpc/internal/transport) and one message.
const lentBytes = 16 << 10

// lend makes a buffer for the transport of a piece of a body. The lease, which is held now, is held until the transport has
// let go of the buffer.
func lend(lease *memory.Reservation, piece mem.Buffer) mem.Buffer {
	if lease == nil || piece.Len() < lentBytes || !lease.Retain() {
		return piece
	}
	h := &hold{lease: lease}
	l := &loan{h}
	runtime.AddCleanup(l, (*hold).end, h)
	data := piece.ReadOnlyData()
	return mem.NewBuffer(&data, l)
}

// loan is the pool that a lent buffer comes back to. A transport that ends drops what its streams had left to write without
// a word: then the garbage collector says so.
type loan struct{ *hold }

var _ mem.BufferPool = (*loan)(nil)

// Get is not used: nothing is taken from here.
func (*loan) Get(length int) *[]byte {
	b := make([]byte, length)
	return &b
}

// Put is the end of the loan.
func (l *loan) Put(*[]byte) { l.end() }

// hold is what a loan holds.
type hold struct {
	lease *memory.Reservation
	ended atomic.Bool
}

// end releases the lease, once.
func (h *hold) end() {
	if h.ended.CompareAndSwap(false, true) {
		h.lease.Release()
	}
}
