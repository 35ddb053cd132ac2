package session

import (
	"testing"
	"testing/synctest"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// hold starts calls of a cluster, and returns the first that the host gets of them.
func (m *mesh) hold(h *host, cluster string, calls int, hooks ...string) (all []*results, got []*hostv1.Review) {
	m.t.Helper()
	m.cluster = cluster
	for range calls {
		all = append(all, m.review(hooks...))
	}
	m.held = append(m.held, all...)
	for f := h.hear(); f != nil; f = h.hear() {
		if f.GetReview() != nil {
			got = append(got, f.GetReview())
		}
	}
	return all, got
}

func TestSlowCallsOfAClusterLeaveSlotsToOthers(t *testing.T) {
	inBubble(t, []string{"a", "b"}, func(t *testing.T, m *mesh) {
		m.router.UpdateClusters([]string{"noisy", "quiet"})
		h := m.connect("one", &hostv1.Hello{MaxOutstanding: 16}, "a", "b")
		waiting, noisy := m.hold(h, "noisy", 16, "a")
		if len(noisy) != 12 {
			t.Errorf("one cluster holds %d of 16 slots, want 12", len(noisy))
		}
		quiet, got := m.hold(h, "quiet", 1, "a")
		if len(got) != 1 {
			t.Fatal("the call of another cluster waits behind them")
		}
		if _, more := m.hold(h, "noisy", 1, "b"); len(more) != 0 {
			t.Error("it gets more of the session by another hook")
		}
		h.allow(got[0], 0)
		quiet[0].want("a", "allowed")
		h.allow(noisy[0], 0) // the slot goes to a call of the same cluster that waits
		waiting[0].want("a", "allowed")
		h.review()
		if f := h.hear(); f != nil {
			t.Errorf("got %v", f)
		}
	})
}

func TestAClusterThatIsAloneMayUseAllSlots(t *testing.T) {
	for name, alone := range map[string]func(m *mesh) *host{
		"no other cluster is known": func(m *mesh) *host {
			m.router.UpdateClusters([]string{"east"})
			return m.connect("one", &hostv1.Hello{MaxOutstanding: 4}, "a")
		},
		"the hook is for it alone": func(m *mesh) *host {
			m.clusters = []string{"east", "unknown"}
			m.configure("a")
			m.router.UpdateClusters([]string{"east", "west"})
			return m.connect("one", &hostv1.Hello{MaxOutstanding: 4}, "a")
		},
		"the host asks for it alone": func(m *mesh) *host {
			m.router.UpdateClusters([]string{"east", "west"})
			return m.connect("one", &hostv1.Hello{MaxOutstanding: 4, Clusters: []string{"east"}}, "a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
				if _, got := m.hold(alone(m), "east", 4, "a"); len(got) != 4 {
					t.Errorf("it holds %d of 4 slots", len(got))
				}
			})
		})
	}
}

// A configuration with one cluster gives it the slots that were kept from it. A configuration with another
// cluster keeps them again, while calls go on.
func TestSharesFollowTheConfiguration(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		m.router.UpdateClusters([]string{"west", "east"})
		h := m.connect("one", &hostv1.Hello{MaxOutstanding: 8}, "a")
		reviews := func(when string, want int) {
			t.Helper()
			n := 0
			for f := h.hear(); f != nil; f = h.hear() {
				if f.GetReview() != nil {
					h.allow(f.GetReview(), 0)
					n++
				}
			}
			if n != want {
				t.Errorf("%s: got %d calls, want %d", when, n, want)
			}
		}
		m.hold(h, "east", 8, "a")
		reviews("two clusters", 0) // hold has taken six
		m.router.UpdateClusters([]string{"east"})
		if n := h.hear(); n.GetReview() == nil {
			t.Errorf("alone: got %v", n)
		}
		if n := h.hear(); n.GetReview() == nil {
			t.Errorf("alone: got %v", n)
		}
		m.clusters = []string{"east"}
		m.configure("a")
		m.router.UpdateClusters([]string{"east", "west"})
		if s := m.router.all()[0]; s.Figures().Shared {
			t.Error("the hook is for one cluster")
		}
		m.clusters = []string{"east", "west"}
		m.configure("a")
		if s := m.router.all()[0]; !s.Figures().Shared {
			t.Error("the hook is for two clusters")
		}
		m.clusters = nil
		m.configure("a")
		if s := m.router.all()[0]; !s.Figures().Shared {
			t.Error("the hook is for all clusters")
		}
		if f := h.hear(); f != nil {
			t.Errorf("the host is told %v, and its hook stands as it stood", f)
		}
	})
}

// Calls of one review are in one frame as far as the share of their cluster goes. The others wait.
func TestAReviewWithMoreCallsThanItsClusterMayHold(t *testing.T) {
	inBubble(t, []string{"a", "b", "c", "d"}, func(t *testing.T, m *mesh) {
		m.router.UpdateClusters([]string{"east", "west"})
		h := m.connect("one", &hostv1.Hello{MaxOutstanding: 4}, "a", "b", "c", "d")
		m.cluster = "east"
		got := m.review("a", "b", "c", "d")
		r := h.review()
		if len(r.GetHooks()) != 3 {
			t.Errorf("got %d calls of 4 at once, want 3", len(r.GetHooks()))
		}
		h.allow(r, 0)
		h.allow(h.review(), 0)
		h.allow(r, 1)
		h.allow(r, 2)
		for _, name := range []string{"a", "b", "c", "d"} {
			got.want(name, "allowed")
		}
	})
}

// Of two slots a cluster that has one may not have the other, though half of them are free.
func TestSparesAreWithinTheShare(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		m.router.UpdateClusters([]string{"east", "west"})
		h := m.connect("one", &hostv1.Hello{MaxOutstanding: 2}, "a")
		m.hold(h, "east", 1, "a")
		hook := m.snapshot.Hooks()[0]
		if m.router.Spare(hook, review.Shadow, "east") || !m.router.Spare(hook, review.Shadow, "west") {
			t.Error("spare for a cluster past its share, or not for the other one")
		}
		m.mode, m.cluster = review.Shadow, "east"
		m.review("a").want("a", "overload")
	})
}

// Slots that a cluster holds on one replica do not keep it from another one.
func TestAClusterPastItsShareOfAReplicaGetsAnotherOne(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		m.router.UpdateClusters([]string{"east", "west"})
		one := m.connect("one", &hostv1.Hello{MaxOutstanding: 4}, "a")
		if _, got := m.hold(one, "east", 4, "a"); len(got) != 3 {
			t.Fatalf("it holds %d of 4 slots", len(got))
		}
		two := m.connect("two", &hostv1.Hello{MaxOutstanding: 4}, "a")
		if two.hear().GetReview() == nil {
			t.Error("the call that waited is not there")
		}
		if _, got := m.hold(two, "east", 2, "a"); len(got) != 2 {
			t.Errorf("it got %d slots more of the other one, want 2", len(got))
		}
		elapse(time.Millisecond)
		synctest.Wait()
	})
}
