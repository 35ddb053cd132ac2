package stream

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

func TestAClusterHoldsThreeTimesWhatItLeavesFree(t *testing.T) {
	for _, test := range []struct {
		credit   int64
		clusters int
		want     []int64 // the slots of each, when all take in turn as many as they may
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

// As many slots may be taken at once as one by one.
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

// Whatever becomes of calls and of the credit, a call is taken only if its cluster then holds at most three times the slots
// that it leaves free, or no other slot; and each slot comes back.
func TestTheBooksOfSlotsAreRight(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 14))
		s := newState(epoch, &hostv1.Hello{MaxOutstanding: 1 + r.Uint32N(40)})
		s.shared = true
		var out []*ticket
		submitSome := func(cluster string) {
			n := min(1+r.IntN(4), s.freeSlotsFor(cluster))
			if n == 0 {
				return
			}
			b := &review.CallSet{Request: &admissionv1.AdmissionRequest{Cluster: cluster}}
			frame := make([]*ticket, n)
			for i := range frame {
				b.Calls = append(b.Calls, review.Call{Hook: &match.Hook{}, Deadline: epoch.Add(time.Duration(r.IntN(40)) * time.Second)})
				frame[i] = &ticket{batch: b, index: i}
			}
			f := submit(s, frame...)
			f.slot.frame = f.id
			for _, k := range frame {
				k.Submitted(&f.slot)
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
				submitSome([]string{"north", "east", "west"}[r.IntN(3)])
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
		if s.endCalls(errSilent, time.Now()); s.usedSlots != 0 {
			t.Errorf("seed %d: %d slots are taken in the end", seed, s.usedSlots)
		}
		for cluster, x := range s.shares.all() {
			if n := x.held.Load(); n != 0 {
				t.Errorf("seed %d: cluster %s holds %d slots in the end", seed, cluster, n)
			}
		}
	}
}
