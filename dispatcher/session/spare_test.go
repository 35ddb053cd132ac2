package session

import (
	"testing"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/pool"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
)

// spare asks for capacity of the first hook of the snapshot.
func (m *mesh) spare(cluster string) bool {
	return m.router.Spare(m.snapshot.Hooks()[0], review.Shadow, cluster)
}

func (m *mesh) wantSpare(want bool, when string) {
	m.t.Helper()
	if got := m.spare("east"); got != want {
		m.t.Errorf("%s: spare is %t", when, got)
	}
}

func TestHalfOfASessionsSlotsAreKeptForCallsThatDecide(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		m.wantSpare(false, "without a host")
		h := m.connect("one", &hostv1.Hello{MaxOutstanding: 4}, "a")
		m.wantSpare(true, "an idle host")
		m.review("a")
		m.review("a")
		first, second := h.review(), h.review()
		m.wantSpare(true, "two of four slots are free")
		m.review("a")
		m.wantSpare(false, "one of four slots is free")
		h.allow(first, 0)
		m.wantSpare(true, "two are free again")
		h.allow(second, 0)
		h.allow(h.review(), 0)
	})
}

func TestASessionWithOneSlotIsSpareWhileItIsIdle(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{MaxOutstanding: 1}, "a")
		m.wantSpare(true, "idle")
		m.review("a")
		m.wantSpare(false, "busy")
		waits := m.review("a")
		h.allow(h.review(), 0)
		h.allow(h.review(), 0)
		waits.want("a", "allowed")
		m.wantSpare(true, "idle again")
	})
}

func TestNothingIsSpareWhileACallOfTheHookWaits(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		east := m.connect("one", &hostv1.Hello{Clusters: []string{"east"}}, "a")
		if m.spare("west") {
			t.Error("spare for a cluster that nobody serves")
		}
		m.wantSpare(true, "nobody waits")
		got := m.review("a") // of no cluster
		got.want("a", "pending")
		m.wantSpare(false, "a call of another cluster waits")
		alive(pool.AbsenceGrace+stream.TickInterval, east)
		got.want("a", "unavailable")
		m.wantSpare(true, "nobody waits any more")
	})
}

func TestASilentOrLeavingSessionIsNotSpare(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{}, "a")
		elapse(stream.SuspectAfter + time.Millisecond)
		m.wantSpare(false, "silent")
		h.say(pong())
		m.wantSpare(true, "it speaks again")
		h.say(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Drain{Drain: &hostv1.HostDrain{}}})
		m.wantSpare(false, "leaving")
	})
}
