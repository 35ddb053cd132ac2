package session

import (
	"runtime"
	"testing"
	"weak"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// TestAReviewThatNobodyWaitsForIsNotKeptForASlowHost has a call end behind a frame that takes its host seconds. The slot is
// free, so that others come in its place, again and again: what it was about must be gone.
func TestAReviewThatNobodyWaitsForIsNotKeptForASlowHost(t *testing.T) {
	for name, capability := range map[string]string{"whole": "", "in chunks": capabilityChunks} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
				h := m.dial("host", 1)
				h.say(with(hello("one", "a"), func(h *hostv1.Hello) { h.Capabilities = []string{capability} }))
				h.hear()
				first, end := m.ask(4 * MaxWholeBytes)
				object := make([]byte, 2*MaxWholeBytes)
				kept := weak.Make(&object[0])
				second, cancel := m.askAbout(object)
				cancel(0)
				<-second
				runtime.GC()
				if kept.Value() != nil {
					t.Error("a review that nobody waits for is kept until its host reads")
				}
				end(0)
				<-first
			})
		})
	}
}

// TestCallsThatEndBeforeTheyAreWrittenDoNotPileUp is the same for what is left of them, which is little, and the calls many:
// the first denial of another hook ends each.
func TestCallsThatEndBeforeTheyAreWrittenDoNotPileUp(t *testing.T) {
	t.Parallel()
	w := fuzzWorld{t: t, state: newState(epoch, &hostv1.Hello{Capabilities: []string{capabilityChunks}}), now: epoch, ends: map[*ticket]int{}}
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
	if w.state.taken != 4 || taken < 2 {
		t.Errorf("%d parts were written, %d slots are taken", taken, w.state.taken)
	}
}
