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

// hedger is the calls of one batch that may go to a second replica, and the one timer for them.
type hedger struct {
	registry *Registry
	calls    []*hedgedCall // by due, once armed
	open     atomic.Int64  // calls that are not over

	mu    sync.Mutex
	at    int         // the call that is due next
	timer *time.Timer // nil until the batch is placed, and once nothing is open
}

// hedge prepares a ticket that has not been placed for a second one, if its route asks for that.
func (r *Registry) hedge(all *hedger, t *ticket) *hedger {
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
		all = &hedger{registry: r}
	}
	t.hedged = &hedgedCall{hedger: all, first: t, due: t.begun.Add(after), race: newRace()}
	all.calls = append(all.calls, t.hedged)
	all.open.Add(1)
	return all
}

// arm starts the timer, when the tickets have been placed.
func (h *hedger) arm() {
	slices.SortStableFunc(h.calls, func(a, b *hedgedCall) int { return a.due.Compare(b.due) })
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open.Load() > 0 {
		h.timer = time.AfterFunc(time.Until(h.calls[0].due), h.fire)
	}
}

// fire sends out the second tickets that are due. It never blocks.
func (h *hedger) fire() {
	now := time.Now()
	for d := h.due(now); d != nil; d = h.due(now) {
		d.sendSecond(now)
	}
}

// due is the next call whose time has come; nil when that is later, for which the timer is set, or never.
func (h *hedger) due(now time.Time) *hedgedCall {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer == nil || h.at == len(h.calls) {
		return nil
	}
	d := h.calls[h.at]
	if d.due.After(now) {
		h.timer.Reset(d.due.Sub(now))
		return nil
	}
	h.at++
	return d
}

// callEnded takes note that one call is over. With the last one the timer goes.
func (h *hedger) callEnded() {
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
