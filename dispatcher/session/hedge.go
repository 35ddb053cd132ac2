package session

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// hedging is what is known of a hook whose slow calls go to a second replica. The rules: only calls that decide and have
// no side effects; after a delay, once; to a replica of another instance that has spare capacity, so never while calls of
// the hook wait; at most a share of all calls. The first verdict counts, and the other ticket is cancelled.
type hedging struct {
	budget hedgeBudget
	delay  latencies
}

// after is when a call that has not answered goes to a second replica; 0 while that is not known.
func (h *hedging) after(o match.Hedge) time.Duration {
	if o.After > 0 {
		return o.After
	}
	return h.delay.p95()
}

// percent is the share of extra calls.
func percent(o match.Hedge) int {
	if o.Percent == 0 {
		return DefaultHedgePercent
	}
	return o.Percent
}

// hedges is the calls of one batch that may go to a second replica, and the one timer for them.
type hedges struct {
	registry *Registry
	duels    []*duel      // by due, once armed
	open     atomic.Int64 // duels that are not over

	mu    sync.Mutex
	at    int         // the duel that is due next
	timer *time.Timer // nil until the batch is placed, and once nothing is open
}

// hedge prepares a ticket that has not been placed for a second one, if its route asks for that.
func (r *Registry) hedge(all *hedges, t *ticket) *hedges {
	o := t.call().Hook.Route.Hedge
	if !o.Enabled || t.pool == nil || t.call().Mode != review.Decide || !withoutSideEffects(t) {
		return all
	}
	known := t.pool.hedging.Load()
	if known == nil { // the configuration has just said no
		return all
	}
	known.budget.earn(percent(o))
	t.measured = known
	after := known.after(o)
	if after == 0 {
		return all
	}
	if all == nil {
		all = &hedges{registry: r}
	}
	t.duel = &duel{hedges: all, first: t, due: t.begun.Add(after), race: newRace()}
	all.duels = append(all.duels, t.duel)
	all.open.Add(1)
	return all
}

// arm starts the timer, when the tickets have been placed.
func (h *hedges) arm() {
	slices.SortStableFunc(h.duels, func(a, b *duel) int { return a.due.Compare(b.due) })
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open.Load() > 0 {
		h.timer = time.AfterFunc(time.Until(h.duels[0].due), h.fire)
	}
}

// fire sends out the second tickets that are due. It never blocks.
func (h *hedges) fire() {
	now := time.Now()
	for d := h.due(now); d != nil; d = h.due(now) {
		d.hedge(now)
	}
}

// due is the next duel whose time has come; nil when that is later, for which the timer is set, or never.
func (h *hedges) due(now time.Time) *duel {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer == nil || h.at == len(h.duels) {
		return nil
	}
	d := h.duels[h.at]
	if d.due.After(now) {
		h.timer.Reset(d.due.Sub(now))
		return nil
	}
	h.at++
	return d
}

// settled takes note that one call is over. With the last one the timer goes.
func (h *hedges) settled() {
	if h.open.Add(-1) > 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
}
