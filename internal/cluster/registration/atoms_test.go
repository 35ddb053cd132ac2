package registration

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// overlaps reports whether both atoms cover some request.
func (a atom) overlaps(b atom) bool {
	ar, as := splitResource(a[dimResource])
	br, bs := splitResource(b[dimResource])
	return a[dimOperation] == b[dimOperation] && a[dimScope] == b[dimScope] &&
		meet(a[dimGroup], b[dimGroup]) && meet(a[dimVersion], b[dimVersion]) && meet(ar, br) && meet(as, bs) &&
		(ar == br || !match.NamedOnly(b[dimGroup], br) && !match.NamedOnly(a[dimGroup], ar))
}

// TestASetOfAtomsAnswersAsItsAtomsDo compares each question with one to every atom.
func TestASetOfAtomsAnswersAsItsAtomsDo(t *testing.T) {
	for seed := range uint64(citest.Rounds(200, 2000, 20000)) {
		random := rand.New(rand.NewPCG(seed, 3))
		pick := func(words ...string) string { return words[random.IntN(len(words))] }
		list := func() []atom {
			all := make([]atom, 1+random.IntN(6))
			for i := range all {
				all[i] = atom{
					pick("*", "", "g", "coordination.k8s.io"), pick("*", "v1", "v2"), pick("*", "*/*", "*/status", "r", "r/*", "r/status", "leases", "leases/*", "events"),
					pick("Cluster", "Namespaced"), pick("CREATE", "UPDATE"),
				}
			}
			return all
		}
		inside, asked := list(), list()
		set := newAtomSet(inside)
		common := map[atom]bool{}
		for _, a := range asked {
			covers := slices.ContainsFunc(inside, func(b atom) bool { return b == a || b.covers(a) })
			overlaps := covers || a.wild() && slices.ContainsFunc(inside, a.overlaps)
			widely := slices.ContainsFunc(inside, func(b atom) bool { return b != a && b.covers(a) })
			if set.covers(a) != covers || set.overlaps(a) != overlaps || set.coversWidely(a) != widely {
				t.Errorf("seed %d: %q of %q: covers %v, want %v; overlaps %v, want %v; covers widely %v, want %v", seed, a, inside,
					set.covers(a), covers, set.overlaps(a), overlaps, set.coversWidely(a), widely)
			}
			for _, b := range inside {
				if a.wild() && a.overlaps(b) {
					common[b] = true
				}
			}
		}
		got := set.common(asked)
		if len(got) != len(common) || slices.ContainsFunc(got, func(b atom) bool { return !common[b] }) {
			t.Errorf("seed %d: %q and %q have in common %q, want %v", seed, inside, asked, got, common)
		}
	}
}
