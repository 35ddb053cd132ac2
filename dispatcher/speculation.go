package dispatcher

import (
	"math"
	"sync/atomic"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

const (
	// maxWaste is how likely it may be that a call ahead of its turn is thrown away. One in twenty keeps what speculation
	// adds to the load of hosts below 5 %, on the average and for each hook, and leaves nearly all that it can save: a hook
	// that changes one object in twenty is one that most reviews have to wait for anyway.
	maxWaste = 0.05
	// upsetMemory is over how many of its latest calls a hook is judged: long enough to tell 2 % from 5 %, and short enough
	// to notice within a second or so of load that a new version of it changes everything. A hook that nothing is known of
	// counts as one that changes every object: some hundred calls that change nothing come before anything is asked
	// behind it.
	upsetMemory = 32
)

// gate decides which mutating hooks are asked ahead of their turn: those whose route allows it, where a replica is idle,
// behind hooks that rarely upset what is asked behind them. It learns from calls that count, whether hooks were asked
// behind them or not: so nothing has to be tried to find out that a hook has changed its ways. All methods may be called
// concurrently.
type gate struct {
	capacity Capacity // nil is never
	known    atomic.Pointer[upsets]
}

// upsets is how often the hooks of a snapshot change the object or end the review. Those of one snapshot are kept.
type upsets struct {
	snapshot *match.Snapshot
	shares   []atomic.Uint32 // of a hook's latest calls, as float32, by Hook.Ordinal; nil if no route asks for speculation
}

// of is what is known of the hooks of a snapshot; nil if it is nobody's business. What was known of the same hooks in the
// snapshot before it is kept.
func (g *gate) of(s *match.Snapshot) *upsets {
	if g.capacity == nil {
		return nil
	}
	before := g.known.Load()
	if before != nil && before.snapshot == s {
		return before
	}
	made := newUpsets(s, before)
	g.known.Store(made)
	return made
}

func newUpsets(s *match.Snapshot, before *upsets) *upsets {
	made, wanted := &upsets{snapshot: s}, false
	for _, h := range s.Hooks() {
		wanted = wanted || h.Route.Speculate
	}
	if !wanted {
		return made
	}
	made.shares = make([]atomic.Uint32, len(s.Hooks()))
	shares := before.byHook()
	for _, h := range s.Hooks() {
		share, learnt := shares[h.ID]
		if !learnt {
			share = 1
		}
		made.shares[h.Ordinal()].Store(math.Float32bits(share))
	}
	return made
}

// byHook is what is known, for the next snapshot.
func (u *upsets) byHook() map[match.HookID]float32 {
	if u == nil || u.shares == nil {
		return nil
	}
	all := make(map[match.HookID]float32, len(u.shares))
	for _, h := range u.snapshot.Hooks() {
		all[h.ID] = u.of(h)
	}
	return all
}

// of is the share of a hook's latest calls that upset what would have been asked behind them.
func (u *upsets) of(h *match.Hook) float32 {
	return math.Float32frombits(u.shares[h.Ordinal()].Load())
}

// learn takes note of what came of a call. Where two come at the same moment one may be lost: there are more.
func (u *upsets) learn(o chain.Outcome) {
	if u == nil || u.shares == nil {
		return
	}
	var upset float32
	switch o.Effect {
	case chain.Patched, chain.Denied, chain.FailedClosed, chain.Refused:
		upset = 1
	case chain.Allowed, chain.FailedOpen:
	case chain.Undecided, chain.Skipped, chain.Discarded, chain.Shadowed:
		return
	}
	share := &u.shares[o.Hook.Ordinal()]
	bits := share.Load()
	old := math.Float32frombits(bits)
	share.CompareAndSwap(bits, math.Float32bits(old+(upset-old)/upsetMemory))
}

// speculate is [chain.Options].Speculate for the reviews of a cluster; nil where nobody may be asked ahead.
func (g *gate) speculate(u *upsets, cluster string) func(h *match.Hook, behind []*match.Hook) bool {
	if u == nil || u.shares == nil {
		return nil
	}
	return func(h *match.Hook, behind []*match.Hook) bool {
		return h.Route.Speculate && u.steady(behind) && g.capacity.Spare(h, review.Speculative, cluster)
	}
}

// steady reports whether what is asked behind hooks will probably count.
func (u *upsets) steady(behind []*match.Hook) bool {
	counts := float32(1)
	for _, h := range behind {
		if counts *= 1 - u.of(h); counts < 1-maxWaste {
			return false
		}
	}
	return true
}

// What calls ahead of their turn were good for, as portcullis_hook_speculation_total has it.
const (
	speculationCounted   = "counted"   // the verdict was heard in its turn
	speculationDiscarded = "discarded" // another hook changed the object, or ended the review
	speculationFailed    = "failed"    // there was no verdict: the hook was asked again, if its turn came
)

// speculated counts a call that was made ahead of its turn.
func (i *instrumentation) speculated(o chain.Outcome) {
	outcome := speculationCounted
	switch {
	case o.Effect == chain.Discarded && o.Failure != nil:
		outcome = speculationFailed
	case o.Effect == chain.Discarded, o.Effect == chain.Undecided:
		outcome = speculationDiscarded
	}
	i.ahead.WithLabelValues(o.Hook.ID.Name, typeLabel(o.Hook), outcome).Inc()
}
