package stream

import (
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
)

// reserved is a ledger, and a reservation of a body of n bytes.
func reserved(t *testing.T, n int) (*memory.Ledger, *memory.Reservation) {
	t.Helper()
	ledger, err := memory.New(memory.Options{Total: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	reservation, err := ledger.Reserve("prod-1", int64(n))
	if err != nil {
		t.Fatal(err)
	}
	return ledger, reservation
}

// A large piece is accounted for as long as the transport has any part of it; of a small one nobody keeps account.
func TestALoanLastsAsLongAsTheTransportHasAnyOfIt(t *testing.T) {
	for _, size := range []int{trackedBytes - 1, trackedBytes, 1 << 20} {
		ledger, reservation := reserved(t, size)
		part := Part{Head: []byte("head"), Body: mem.BufferSlice{mem.SliceBuffer(make([]byte, size))}, Reservation: reservation}
		buffers, err := Codec().Marshal(&Outgoing{Parts: []Part{part}})
		if err != nil {
			t.Fatal(err)
		}
		reader := buffers.Reader() // which has references of its own
		buffers.Free()
		reservation.Release() // the review is answered
		want := int64(0)
		if size >= trackedBytes {
			want = int64(size)
		}
		if got := ledger.InUse(); got != want {
			t.Errorf("a piece of %d bytes that is being written: %d are accounted for, want %d", size, got, want)
		}
		if _, err := reader.Discard(len(part.Head) + size/2); err != nil {
			t.Fatal(err)
		}
		if got := ledger.InUse(); got != want {
			t.Errorf("half of it is written: %d are accounted for, want %d", got, want)
		}
		if err := reader.Close(); err != nil {
			t.Fatal(err)
		}
		if got := ledger.InUse(); got != 0 {
			t.Errorf("it is written: %d are accounted for", got)
		}
	}
}

// A transport that ends drops its unwritten frames.
func TestALoanEndsWithTheMemoryItIsAbout(t *testing.T) {
	ledger, reservation := reserved(t, 1<<20)
	lose(t, reservation)
	reservation.Release()
	for deadline := time.Now().Add(time.Minute); ledger.InUse() != 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are accounted for that nobody can reach", ledger.InUse())
		}
		runtime.GC()
	}
}

//go:noinline
func lose(t *testing.T, reservation *memory.Reservation) {
	t.Helper()
	if _, err := Codec().Marshal(&Outgoing{Parts: []Part{{Body: mem.BufferSlice{mem.SliceBuffer(make([]byte, 1<<20))}, Reservation: reservation}}}); err != nil {
		t.Error(err)
	}
}

// A frame keeps no memory of a review that is over, also while others do.
func TestNothingIsLentOnALeaseThatHasEnded(t *testing.T) {
	ledger, reservation := reserved(t, 1<<20)
	reservation.Release()
	if _, counted := trackBuffer(reservation, mem.SliceBuffer(make([]byte, 1<<20))).(mem.SliceBuffer); !counted || ledger.InUse() != 0 {
		t.Errorf("%d bytes are accounted for", ledger.InUse())
	}
}
