package dispatcher

import (
	"math"
	"sync/atomic"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

const (
	// changeRateWindow is the time constant, in calls, of the moving average of a hook's change rate: long enough to tell 2 %
	// from 5 %, and short enough to notice within about a second of load that a new version changes every object. The rate
	// of a new hook begins at 1, so that about a hundred calls without a change precede the first speculation behind it.
	changeRateWindow = 32
)

// speculator decides which mutating hooks are called before their turn: those whose route allows it and that have an idle
// replica, if the hooks before them rarely change the object. It learns the change rates from all calls that count, so
// that no trial calls are needed. All methods may be called concurrently.
type speculator struct {
	capacity review.Capacity // nil: no speculation
	latest   atomic.Pointer[changeRates]
}

// changeRates is the change rate of each hook of a snapshot: the fraction of its latest calls that changed the object or ended
// the review.
type changeRates struct {
	snapshot *match.Snapshot
	rates    []atomic.Uint32 // float32 bits, by Hook.Ordinal; nil if no route of the snapshot speculates
}

// ratesOf returns the change rates of a snapshot; nil without a capacity. A new snapshot takes over the rates of hooks that
// the one before it had.
func (s *speculator) ratesOf(snapshot *match.Snapshot) *changeRates {
	if s.capacity == nil {
		return nil
	}
	before := s.latest.Load()
	if before != nil && before.snapshot == snapshot {
		return before
	}
	made := newChangeRates(snapshot, before)
	s.latest.Store(made)
	return made
}

func newChangeRates(s *match.Snapshot, before *changeRates) *changeRates {
	made, wanted := &changeRates{snapshot: s}, false
	for _, h := range s.Hooks() {
		wanted = wanted || h.Route.Speculate
	}
	if !wanted {
		return made
	}
	made.rates = make([]atomic.Uint32, len(s.Hooks()))
	rates := before.ratesByHook()
	for _, h := range s.Hooks() {
		rate, learnt := rates[h.ID]
		if !learnt {
			rate = 1
		}
		made.rates[h.Ordinal()].Store(math.Float32bits(rate))
	}
	return made
}

func (r *changeRates) ratesByHook() map[match.HookID]float32 {
	if r == nil || r.rates == nil {
		return nil
	}
	all := make(map[match.HookID]float32, len(r.rates))
	for _, h := range r.snapshot.Hooks() {
		all[h.ID] = r.rateOf(h)
	}
	return all
}

func (r *changeRates) rateOf(h *match.Hook) float32 {
	return math.Float32frombits(r.rates[h.Ordinal()].Load())
}

// learnOutcome updates the rate of a hook. Of two concurrent updates one may be lost, which the average tolerates.
func (r *changeRates) learnOutcome(o chain.Outcome) {
	if r == nil || r.rates == nil {
		return
	}
	var changed float32
	switch o.Effect {
	case chain.Patched, chain.Denied, chain.FailedClosed, chain.Refused:
		changed = 1
	case chain.Allowed, chain.FailedOpen:
	case chain.Undecided, chain.Skipped, chain.Discarded, chain.Shadowed:
		return
	}
	rate := &r.rates[o.Hook.Ordinal()]
	bits := rate.Load()
	old := math.Float32frombits(bits)
	rate.CompareAndSwap(bits, math.Float32bits(old+(changed-old)/changeRateWindow))
}

// speculate returns [chain.Options].Speculate for the reviews of a cluster; nil if no hook may be called before its turn.
func (s *speculator) speculate(r *changeRates, cluster string) func(h *match.Hook, behind []*match.Hook) bool {
	if r == nil || r.rates == nil {
		return nil
	}
	return func(h *match.Hook, behind []*match.Hook) bool {
		return h.Route.Speculate && r.rarelyChange(behind) && s.capacity.Spare(h, review.Speculative, cluster)
	}
}

// rarelyChange reports whether a call behind these hooks is discarded with a probability of at most [chain.MaxDiscardRate].
func (r *changeRates) rarelyChange(behind []*match.Hook) bool {
	counts := float32(1)
	for _, h := range behind {
		if counts *= 1 - r.rateOf(h); counts < 1-chain.MaxDiscardRate {
			return false
		}
	}
	return true
}
