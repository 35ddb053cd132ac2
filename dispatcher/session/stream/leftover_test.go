package stream

import (
	"testing"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// TestCallsThatEndBeforeTheyAreWrittenDoNotPileUp cancels many calls that a frame waits for: the first denial of another hook ends each.
func TestCallsThatEndBeforeTheyAreWrittenDoNotPileUp(t *testing.T) {
	t.Parallel()
	w := fuzzWorld{t: t, state: newState(epoch, &hostv1.Hello{Capabilities: []string{CapabilityChunks}}), now: epoch, ends: map[*ticket]int{}}
	w.submit(1)
	w.submit(3) // in chunks
	for range 10_000 {
		for _, n := range []int{1, 3} {
			w.submit(n)
			for i := range n {
				w.cancel(len(w.tickets) - 1 - i)
			}
		}
	}
	w.check()
	if small, large := w.state.small.len(), w.state.large.len(); small > keptInQueue || large > keptInQueue {
		t.Errorf("%d and %d frames wait for the writer, and two are wanted", small, large)
	}
	taken := 0
	for out := w.state.next(w.now); out != nil; out = w.state.next(w.now) {
		taken += len(out.Parts)
	}
	if w.state.usedSlots != 4 || taken < 2 {
		t.Errorf("%d parts were written, %d slots are taken", taken, w.state.usedSlots)
	}
}
