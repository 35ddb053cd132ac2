package replay_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	"github.com/portcullis-mesh/portcullis/dispatcher/latency/replay"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// enoughWorlds is from how many random worlds on every outcome has to have been seen.
const enoughWorlds = 100

// worlds is the number of random worlds of a test.
func worlds() int { return citest.Cases(enoughWorlds, enoughWorlds, 10*enoughWorlds) }

// inWorlds runs a test with random hooks in real dispatchers, whose time is virtual.
func inWorlds(t *testing.T, f func(*testing.T, uint64, *world)) {
	for seed := range uint64(worlds()) {
		t.Run(fmt.Sprint("world ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, seed, randomWorld(seed, seed%3 == 0)) })
		})
	}
}

func TestAReplayWithoutAChangeIsWhatWasRecorded(t *testing.T) {
	outcomes := map[string]int{}
	inWorlds(t, func(t *testing.T, _ uint64, w *world) {
		got, err := replay.Replayed(w.judge(t, w.stage(), 50), replay.Variant{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range got {
			outcomes[r.Outcome]++
			for _, c := range r.Calls {
				outcomes[fmt.Sprint("call ", c.Outcome, c.Round)]++
			}
			if !r.Same() {
				t.Errorf("review %+v\nreplayed as %s", r.ReviewRecord, r.Text())
			}
		}
	})
	for _, outcome := range []string{
		"allowed", "denied", "failed", "call patched0", "call failed-open0", "call cancelled0", "call discarded0", "call allowed1", "call failed-open1",
	} {
		if worlds() >= enoughWorlds && outcomes[outcome] == 0 {
			t.Errorf("no world had the outcome %q: %v", outcome, outcomes)
		}
	}
}

// TestAReplayIsWhatHappensWhenTheChangeIsMade makes a change in random worlds and has the same reviews judged again. A replay that needs
// nothing that was not recorded has the same outcomes and times.
func TestAReplayIsWhatHappensWhenTheChangeIsMade(t *testing.T) {
	exact, different, all := 0, 0, 0
	inWorlds(t, func(t *testing.T, seed uint64, w *world) {
		for i := range w.hooks {
			w.hooks[i].speculate = false // the rates learnt about hooks are not replayed
		}
		before := w.judge(t, w.stage(), 50)
		variant := w.change(seed)
		after := map[string]*latency.ReviewRecord{}
		for _, v := range w.judge(t, w.stage(), 50).Reviews["d"] {
			after[v.UID] = v
		}
		got, err := replay.Replayed(before, variant)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range got {
			is := after[r.UID]
			if all++; is.Took != r.Took || is.Outcome != r.Outcome {
				different++
			}
			if !r.Exact() {
				continue
			}
			if exact++; !r.Like(is) {
				t.Errorf("%+v: review %+v\nreplayed as %s\nbecame %+v", variant, r.ReviewRecord, r.Text(), is)
			}
		}
	})
	t.Logf("of %d reviews %d became others; the records had all that was needed of %d", all, different, exact)
	if exact < all/2 || different == 0 {
		t.Error("little was tested")
	}
}

// change makes a random change in a world.
func (w *world) change(seed uint64) (c replay.Variant) {
	r := random(seed, "change")
	h := &w.hooks[r.IntN(len(w.hooks))]
	if h.initializes && !h.parallel && r.IntN(2) == 0 {
		h.parallel, c.Parallel = true, []string{h.name}
		return c
	}
	if r.IntN(2) == 0 && len(w.hooks) > 1 {
		c.Without = []string{h.name}
		i := r.IntN(len(w.hooks))
		c.Without = []string{w.hooks[i].name}
		w.hooks = append(w.hooks[:i:i], w.hooks[i+1:]...)
		return c
	}
	h.timeout = max(5*ms, h.timeout/time.Duration(2+r.IntN(10)))
	c.Deadlines = map[string]time.Duration{h.name: h.timeout}
	return c
}
