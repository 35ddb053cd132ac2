package session

import (
	"runtime"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// TestAReviewThatNobodyWaitsForIsNotKeptForASlowHost has a call end behind a frame that takes its host seconds. The slot is
// free, so that others come in its place, again and again: its review must be gone.
func TestAReviewThatNobodyWaitsForIsNotKeptForASlowHost(t *testing.T) {
	for name, capability := range map[string]string{"whole": "", "in chunks": stream.CapabilityChunks} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
				h := m.dial("host", 0) // it reads, or the writer waits
				h.say(with(hello("one", "a"), func(h *hostv1.Hello) { h.Capabilities = []string{capability} }))
				h.hear()
				first, end := m.ask(4 * stream.MaxWholeBytes)
				synctest.Wait() // it is being written
				object := make([]byte, 2*stream.MaxWholeBytes)
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
