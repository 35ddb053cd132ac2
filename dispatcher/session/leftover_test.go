package session

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// TestAReviewThatNobodyWaitsForIsNotKeptForASlowHost has a call end behind a frame that takes its host seconds. The slot is
// free, so that others come in its place, again and again: what it was about must be gone.
func TestAReviewThatNobodyWaitsForIsNotKeptForASlowHost(t *testing.T) {
	for name, capability := range map[string]string{"whole": "", "in chunks": capabilityChunks} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
				h := m.dial("host", 0) // it reads, or the writer waits
				h.say(with(hello("one", "a"), func(h *hostv1.Hello) { h.Capabilities = []string{capability} }))
				h.hear()
				first, end := m.ask(4 * MaxWholeBytes)
				synctest.Wait() // it is being written
				object := make([]byte, 2*MaxWholeBytes)
				kept := weak.Make(&object[0])
				second, cancel := m.askAbout(object)
				cancel(0)
				<-second
				synctest.Wait() // nobody is on the way back from it
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
	if w.state.usedSlots != 4 || taken < 2 {
		t.Errorf("%d parts were written, %d slots are taken", taken, w.state.usedSlots)
	}
}

// TestATicketThatEndsOnItsWayToASeatHasNone has calls be cancelled between the choice of a replica and the seat there: who
// cancels does not know of either.
func TestATicketThatEndsOnItsWayToASeatHasNone(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.dial("host", 1)
		h.say(with(hello("one", "a"), func(h *hostv1.Hello) { h.MaxOutstanding = 3 }))
		h.hear()
		calls := []*results{m.review("a"), m.review("a")} // the second is being written
		ended := func() *ticket {
			k := &ticket{batch: m.call(), pool: m.registry.hooks.Load().pool(m.snapshot.Hooks()[0])}
			k.ended.Store(true)
			return k
		}
		place([]*ticket{ended()}, time.Now())
		if n := m.registry.all()[0].load.Load(); n != 2 {
			t.Errorf("%d slots are taken, want 2", n)
		}
		calls = append(calls, m.review("a")) // no room is left
		place([]*ticket{ended()}, time.Now())
		if n := m.registry.queued.Load(); n != 0 {
			t.Errorf("%d calls wait", n)
		}
		for _, c := range calls {
			c.cancel["a"]()
		}
	})
}
