package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

func TestAClusterHoldsThreeTimesWhatItLeavesFree(t *testing.T) {
	for _, test := range []struct {
		credit   int64
		clusters int
		want     []int64 // what each gets, when all take in turn what they can
	}{
		{0, 1, []int64{0}},
		{1, 1, []int64{1}}, // one slot is for whoever comes first
		{1, 2, []int64{1, 0}},
		{2, 1, []int64{1}},
		{2, 2, []int64{1, 1}},
		{3, 2, []int64{1, 1}},
		{4, 1, []int64{3}},
		{16, 1, []int64{12}},
		{16, 3, []int64{5, 5, 4}},
		{28, 2, []int64{12, 12}},
		{64, 1, []int64{48}},
		{64, 70, append(slices.Repeat([]int64{1}, 64), slices.Repeat([]int64{0}, 6)...)},
	} {
		t.Run(fmt.Sprintf("%d slots, %d clusters", test.credit, test.clusters), func(t *testing.T) {
			held, free := make([]int64, test.clusters), test.credit
			for more := true; more; {
				more = false
				for i := range held {
					if allowance(held[i], free) > 0 {
						held[i]++
						free--
						more = true
					}
				}
			}
			if !slices.Equal(held, test.want) {
				t.Errorf("held %d, want %d", held, test.want)
			}
		})
	}
}

// A host that answers no call of a cluster any more has leaked less than half of a session's slots, while that lasts.
func TestAClusterMayTakeASlotWhileItHoldsLessThanHalf(t *testing.T) {
	for credit := range int64(70) {
		for held := int64(0); 2*held < credit; held++ {
			if allowance(held, credit-held) == 0 {
				t.Errorf("of %d slots one holds %d, and may take none", credit, held)
			}
		}
	}
}

// What may be taken at once is what may be taken one by one.
func TestSlotsMayBeTakenTogether(t *testing.T) {
	for credit := range int64(70) {
		for held := range credit + 1 {
			for free := range credit - held + 1 {
				most, left := allowance(held, free), int64(0)
				for h, f := held, free; allowance(h, f) > 0; h, f = h+1, f-1 {
					left++
				}
				if most != left {
					t.Fatalf("held %d, free %d: %d at once, %d one by one", held, free, most, left)
				}
			}
		}
	}
}

func TestEmptySharesAreForgottenWhenTheyAreMany(t *testing.T) {
	var s shares
	s.of("busy").held.Add(1)
	for i := range 10 * keptShares {
		s.of(fmt.Sprint(i))
		if n := len(*s.byCluster.Load()); n > keptShares+2 {
			t.Fatalf("%d clusters are remembered", n)
		}
	}
	if s.held("busy") != 1 || s.held("nobody") != 0 {
		t.Error("what a cluster holds is forgotten")
	}
}

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
		m.registry.UpdateClusters([]string{"noisy", "quiet"})
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
			m.registry.UpdateClusters([]string{"east"})
			return m.connect("one", &hostv1.Hello{MaxOutstanding: 4}, "a")
		},
		"the hook is for it alone": func(m *mesh) *host {
			m.clusters = []string{"east", "unknown"}
			m.configure("a")
			m.registry.UpdateClusters([]string{"east", "west"})
			return m.connect("one", &hostv1.Hello{MaxOutstanding: 4}, "a")
		},
		"the host asks for it alone": func(m *mesh) *host {
			m.registry.UpdateClusters([]string{"east", "west"})
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

// A configuration that says that a cluster is alone gives it the slots that were kept from it, and one that names another
// cluster keeps them again, while calls go on.
func TestSharesFollowTheConfiguration(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		m.registry.UpdateClusters([]string{"west", "east"})
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
		m.registry.UpdateClusters([]string{"east"})
		if n := h.hear(); n.GetReview() == nil {
			t.Errorf("alone: got %v", n)
		}
		if n := h.hear(); n.GetReview() == nil {
			t.Errorf("alone: got %v", n)
		}
		m.clusters = []string{"east"}
		m.configure("a")
		m.registry.UpdateClusters([]string{"east", "west"})
		if s := m.registry.all()[0]; s.shared.Load() {
			t.Error("the hook is for one cluster")
		}
		m.clusters = []string{"east", "west"}
		m.configure("a")
		if s := m.registry.all()[0]; !s.shared.Load() {
			t.Error("the hook is for two clusters")
		}
		m.clusters = nil
		m.configure("a")
		if s := m.registry.all()[0]; !s.shared.Load() {
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
		m.registry.UpdateClusters([]string{"east", "west"})
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
		m.registry.UpdateClusters([]string{"east", "west"})
		h := m.connect("one", &hostv1.Hello{MaxOutstanding: 2}, "a")
		m.hold(h, "east", 1, "a")
		hook := m.snapshot.Hooks()[0]
		if m.registry.Spare(hook, review.Shadow, "east") || !m.registry.Spare(hook, review.Shadow, "west") {
			t.Error("spare for a cluster past its share, or not for the other one")
		}
		m.mode, m.cluster = review.Shadow, "east"
		m.review("a").want("a", "overload")
	})
}

// Slots that a cluster holds on one replica do not keep it from another one.
func TestAClusterPastItsShareOfAReplicaGetsAnotherOne(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		m.registry.UpdateClusters([]string{"east", "west"})
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

// Whatever becomes of calls and of the credit, a call is taken only if its cluster then holds no more than three times what
// it leaves free, or has nothing else; and what is taken comes back.
func TestTheBooksOfSlotsAreRight(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 14))
		s := newState(epoch, &hostv1.Hello{MaxOutstanding: 1 + r.Uint32N(40)})
		s.shared = true
		var out []*ticket
		submit := func(cluster string) {
			n := min(1+r.IntN(4), s.freeSlotsFor(cluster))
			if n == 0 {
				return
			}
			b := &dispatcher.Batch{Request: &admissionv1.AdmissionRequest{Cluster: cluster}}
			frame := make([]*ticket, n)
			for i := range frame {
				b.Calls = append(b.Calls, review.Call{Hook: &match.Hook{}, Deadline: epoch.Add(time.Duration(r.IntN(40)) * time.Second)})
				frame[i] = &ticket{batch: b, index: i, done: func(int, review.Result) {}}
			}
			f := s.submit(frame)
			f.slot.frame = f.id
			for _, k := range frame {
				k.slot.Store(&f.slot)
			}
			out = append(out, frame...)
			if held, free := int(s.shares.held(cluster)), s.freeSlots(); held > 1 && held > growthParts*free {
				t.Fatalf("seed %d: cluster %s took the %d. slot, and %d are free", seed, cluster, held, free)
			}
		}
		for step := range 2000 {
			now := epoch.Add(time.Duration(step) * 10 * time.Millisecond)
			switch r.IntN(8) {
			case 0:
				s.credit = r.IntN(40)
			case 1, 2:
				s.next(now)
			case 3:
				if len(out) > 0 {
					k := out[r.IntN(len(out))]
					k.ended.Store(true)
					s.cancel(k.slot.Load().frame, k)
				}
			case 4, 5:
				if len(out) > 0 {
					k := out[r.IntN(len(out))]
					_ = s.verdict(now, &answer{call: k.slot.Load().frame, hook: uint32(k.index), result: review.Result{}})
				}
			default:
				submit([]string{"north", "east", "west"}[r.IntN(3)])
			}
			var held int64
			for _, x := range s.shares.all() {
				held += x.held.Load()
			}
			if held != int64(s.usedSlots) {
				t.Fatalf("seed %d: clusters hold %d slots, and %d are taken", seed, held, s.usedSlots)
			}
			s.results(nil)
		}
		if s.endCalls(errSilent); s.usedSlots != 0 {
			t.Errorf("seed %d: %d slots are taken in the end", seed, s.usedSlots)
		}
		for cluster, x := range s.shares.all() {
			if n := x.held.Load(); n != 0 {
				t.Errorf("seed %d: cluster %s holds %d slots in the end", seed, cluster, n)
			}
		}
	}
}
