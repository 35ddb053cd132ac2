package session

import (
	"sync"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// duel is one call that may have two tickets. What becomes of them comes from any goroutine.
type duel struct {
	hedges *hedges
	first  *ticket
	due    time.Time // when the second one goes out

	mu     sync.Mutex
	race   race
	second *ticket // nil until it goes out
}

// hedge sends out the second ticket, if there is a replica and a budget for it. A call that is over by now costs nothing.
func (d *duel) hedge(now time.Time) {
	p, seeing := d.first.pool, d.hedges.registry.seeing
	if d.first.ended.Load() {
		return
	}
	s := p.spare(d.first.cluster(), now, d.first.met)
	if s == nil {
		seeing.hedgeNoCapacity.Inc()
		return
	}
	if !d.first.measured.budget.spend() {
		seeing.hedgeDenied.Inc()
		return
	}
	second := d.join(now)
	if second == nil {
		d.first.measured.budget.refund()
		return
	}
	if s.submit([]*ticket{second}) == 0 { // the slot went to somebody else just now
		d.first.measured.budget.refund()
		seeing.hedgeNoCapacity.Inc()
		d.leave()
		return
	}
	if second.ended.Load() { // the first one was quicker
		second.leave()
	}
}

// join makes the second ticket; nil when the call needs none any more.
func (d *duel) join(now time.Time) *ticket {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.race.join() {
		return nil
	}
	f := d.first
	d.second = &ticket{
		batch: f.batch, body: f.body, index: f.index, done: f.done, begun: now, pool: f.pool, duel: d, hedge: true,
	}
	return d.second
}

// leave takes the second ticket back: it was never sent.
func (d *duel) leave() {
	d.mu.Lock()
	end, ends := d.race.leave()
	d.second = nil
	d.mu.Unlock()
	if ends {
		d.end(d.first, end)
	}
}

// finish takes the result of a ticket, and ends the call if that was it.
func (d *duel) finish(t *ticket, x review.Result) {
	d.mu.Lock()
	end, ends := d.race.arrive(x)
	other := d.second
	if t == other {
		other = d.first
	}
	d.mu.Unlock()
	if !ends {
		return
	}
	if other != nil && !other.ended.Swap(true) {
		if other == d.first {
			other.overtaken(time.Now())
		}
		other.withdraw()
	}
	d.end(t, end)
}

// end delivers the result of the call. It is called once, unless the call is cancelled.
func (d *duel) end(winner *ticket, x review.Result) {
	d.over(winner != d.first && x.Verdict != nil)
	d.first.deliver(x)
}

// over counts what came of the second ticket, and lets the timer go.
func (d *duel) over(won bool) {
	d.mu.Lock()
	second := d.second
	d.mu.Unlock()
	switch {
	case second == nil:
	case won:
		d.hedges.registry.seeing.hedgeWon.Inc()
	default:
		d.hedges.registry.seeing.hedgeLost.Inc()
	}
	d.hedges.settled()
}

// cancel ends the call, with whatever is out for it.
func (d *duel) cancel() {
	d.mu.Lock()
	first := d.race.abort()
	second := d.second
	d.mu.Unlock()
	if first {
		d.over(false)
		d.first.deliver(review.Fail(review.FailureCancelled, "no longer waited for"))
	}
	for _, t := range [...]*ticket{d.first, second} {
		if t != nil {
			t.ended.Store(true)
			t.withdraw()
		}
	}
}

// lose reports whether a ticket that was lost with its session may go to another one.
func (d *duel) lose() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.race.lose()
}
