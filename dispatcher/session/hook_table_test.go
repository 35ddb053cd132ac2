package session

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/portcullis-mesh/portcullis/dispatcher/session/pool"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
)

// check looks whether everything that a view knows of its pools says the same.
func (v *hookTable) check(t *testing.T, current map[string]bool) {
	t.Helper()
	offered := 0
	for o, pools := range v.byOffer {
		offered += len(pools)
		for _, p := range pools {
			if h := p.Hook(); v.pools[h.ID] != p || v.digests.Offer(offerOf(h)) != o {
				t.Errorf("offer %v has a pool that is not there", o)
			}
		}
	}
	for id, p := range v.pools {
		h := p.Hook()
		if _, removed := v.removed[id]; h.ID != id || v.byHook[h] != p || removed == current[id.Name] {
			t.Errorf("hook %v: removed %t, configured %t", id, removed, current[id.Name])
		}
		delete(current, id.Name)
	}
	if len(current) > 0 || offered != len(v.pools) || len(v.byHook) != len(v.pools) || len(v.removed) > len(v.pools) {
		t.Errorf("%d pools, %d offered, %d by their hooks, %d removed, missing %v",
			len(v.pools), offered, len(v.byHook), len(v.removed), current)
	}
}

// TestAViewIsWhatItsSnapshotsMakeIt lets hooks come, go and come back, now and then after nobody can call them any more.
func TestAViewIsWhatItsSnapshotsMakeIt(t *testing.T) {
	inBubble(t, []string{"h0"}, func(t *testing.T, m *mesh) {
		random := rand.New(rand.NewPCG(1, 2))
		for range 300 {
			before, old := m.router.hooks.Load(), map[string]bool{}
			for id := range before.pools {
				if _, removed := before.removed[id]; !removed {
					old[id.Name] = true
				}
			}
			pools, offers := maps.Clone(before.pools), map[pool.Digest][]*pool.Pool{}
			for o, all := range before.byOffer {
				offers[o] = slices.Clone(all)
			}
			current := map[string]bool{}
			var names []string
			for i := range 6 {
				if name := fmt.Sprint("h", i); random.IntN(8) == 0 != old[name] {
					names = append(names, name)
					current[name] = true
				}
			}
			m.configure(names...)
			m.router.hooks.Load().check(t, current)
			if random.IntN(4) == 0 { // no review calls a removed hook any more
				elapse(stream.MaxReview + stream.TickInterval)
				synctest.Wait()
			}
			if !maps.Equal(before.pools, pools) || !maps.EqualFunc(before.byOffer, offers, slices.Equal[[]*pool.Pool]) {
				t.Error("the view that reviews still work with has changed")
			}
		}
	})
}
