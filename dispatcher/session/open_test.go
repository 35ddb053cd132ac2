package session

import (
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/session/pool"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

func credit(n uint32) *hostv1.ConnectRequest {
	return &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Credit{Credit: &hostv1.Credit{MaxOutstanding: n}}}
}

// A host that takes no calls and stays connected is no host of its hooks: their calls fail as fast as without a host, and
// the dispatcher is not ready with it.
func TestAHostThatTakesNoCallsIsAbsent(t *testing.T) {
	for name, pause := range map[string]*hostv1.ConnectRequest{
		"it drains":       {Frame: &hostv1.ConnectRequest_Drain{Drain: &hostv1.HostDrain{}}},
		"its credit is 0": credit(0),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
				h := m.connect("one", &hostv1.Hello{}, "a")
				if missing := m.router.Ready(); len(missing) != 0 {
					t.Errorf("not ready with a host: %q", missing)
				}
				h.say(pause)
				if missing := m.router.Ready(); len(missing) != 1 {
					t.Errorf("ready with a host that takes no calls: %q is missing", missing)
				}
				first := m.review("a")
				alive(pool.AbsenceGrace-stream.TickInterval, h)
				first.want("a", "pending") // the host may come back
				alive(2*stream.TickInterval, h)
				first.want("a", "unavailable")
				m.review("a").want("a", "unavailable") // at once
				other := m.connect("two", &hostv1.Hello{}, "a")
				got := m.review("a")
				other.allow(other.review(), 0)
				got.want("a", "allowed")
				if missing := m.router.Ready(); len(missing) != 0 {
					t.Errorf("not ready with another host: %q", missing)
				}
			})
		})
	}
}

// A host that pauses and goes on within the grace serves the calls that have waited.
func TestCallsWaitForAHostThatPausesShortly(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{}, "a")
		for range 2 {
			h.say(credit(0))
			got := m.review("a")
			alive(pool.AbsenceGrace-stream.TickInterval, h)
			h.say(credit(1))
			h.allow(h.review(), 0)
			got.want("a", "allowed")
			alive(2*pool.AbsenceGrace, h)
		}
	})
}

// However sessions pause, leave and lose their grants, a pool counts those that take calls.
func TestAPoolCountsTheSessionsThatTakeCalls(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		one, two := m.connect("one", &hostv1.Hello{}, "a"), m.connect("two", &hostv1.Hello{}, "a")
		p := m.router.hooks.Load().pools[m.snapshot.Hooks()[0].ID]
		want := func(when string, n int) {
			t.Helper()
			if got := p.OpenMembers(); got != n {
				t.Errorf("%s: %d sessions take calls, want %d", when, got, n)
			}
		}
		want("two hosts", 2)
		one.say(credit(0))
		want("one has paused", 1)
		one.cancel()
		one.end()
		want("the paused one has left", 1)
		m.configureAs("c", "stranger", "a")
		want("others are granted", 0)
		two.say(credit(0))
		m.configure("a")
		want("granted again, and paused", 0)
		two.say(credit(2))
		want("goes on", 1)
	})
}

// Where hosts have just begun to come, calls wait after a drain: another host may not have found the dispatcher yet.
func TestWhereHostsHaveJustBegunToComeADrainIsNoEnd(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		m.router.found = time.Time{}
		h := m.connect("one", &hostv1.Hello{}, "a")
		h.say(credit(0))
		got := m.reviewFor(30*time.Second, "a")
		alive(pool.AbsenceGrace+2*stream.TickInterval, h)
		got.want("a", "pending")
		alive(StartGrace, h)
		got.want("a", "unavailable")
	})
}

// A host of one cluster that pauses is no host of it, though the host of another cluster takes calls.
func TestAPausedHostOfAClusterServesNoneOfItsCalls(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		east := m.connect("one", &hostv1.Hello{Clusters: []string{"east"}}, "a")
		west := m.connect("two", &hostv1.Hello{Clusters: []string{"west"}}, "a")
		east.say(credit(0))
		m.cluster = "east"
		got := m.reviewFor(30*time.Second, "a")
		alive(pool.AbsenceGrace+2*stream.TickInterval, east, west)
		got.want("a", "unavailable")
	})
}
