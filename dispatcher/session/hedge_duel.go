package session

import (
	"sync"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// hedgedCall is one call that may have two tickets. What becomes of them comes from any goroutine.
type hedgedCall struct {
	hedger *hedger
	first  *ticket
	due    time.Time // when the second one goes out

	mu     sync.Mutex
	race   race
	second *ticket // nil until it goes out
}

// sendSecond sends out the second ticket, if there is a replica and a budget for it. A call that is over by now costs nothing.
func (d *hedgedCall) sendSecond(now time.Time) {
	p, seeing := d.first.pool, d.hedger.registry.metrics
	if d.first.ended.Load() {
		return
	}
	s := p.spare(d.first.cluster(), now, d.first.triedOn)
	if s == nil {
		seeing.hedgeNoCapacity.Inc()
		return
	}
	if !d.first.measured.budget.spend() {
		seeing.hedgeDenied.Inc()
		return
	}
	second := d.addSecond(now)
	if second == nil {
		d.first.measured.budget.refund()
		return
	}
	if s.submit([]*ticket{second}) == 0 { // the slot went to somebody else just now
		d.first.measured.budget.refund()
		seeing.hedgeNoCapacity.Inc()
		d.takeBackSecond()
		return
	}
	if second.ended.Load() { // the first one was quicker
		second.cancelOnSession()
	}
}

// addSecond makes the second ticket; nil when the call needs none any more.
func (d *hedgedCall) addSecond(now time.Time) *ticket {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.race.join() {
		return nil
	}
	f := d.first
	d.second = &ticket{
		batch: f.batch, body: f.body, index: f.index, done: f.done, begun: now, pool: f.pool, hedged: d, hedge: true,
	}
	return d.second
}

// takeBackSecond takes the second ticket back: it was never sent.
func (d *hedgedCall) takeBackSecond() {
	d.mu.Lock()
	end, ends := d.race.withdraw()
	d.second = nil
	d.mu.Unlock()
	if ends {
		d.deliver(d.first, end)
	}
}

// finish takes the result of a ticket, and ends the call if that was it.
func (d *hedgedCall) finish(t *ticket, x review.Result) {
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
			other.countHedgeWin(time.Now())
		}
		other.withdraw()
	}
	d.deliver(t, end)
}

// deliver delivers the result of the call. It is called once, unless the call is cancelled.
func (d *hedgedCall) deliver(winner *ticket, x review.Result) {
	d.countOutcome(winner != d.first && x.Verdict != nil)
	d.first.deliver(x)
}

// countOutcome counts what came of the second ticket, and lets the timer go.
func (d *hedgedCall) countOutcome(won bool) {
	d.mu.Lock()
	second := d.second
	d.mu.Unlock()
	switch {
	case second == nil:
	case won:
		d.hedger.registry.metrics.hedgeWon.Inc()
	default:
		d.hedger.registry.metrics.hedgeLost.Inc()
	}
	d.hedger.callEnded()
}

// cancel ends the call, with whatever is out for it.
func (d *hedgedCall) cancel() {
	d.mu.Lock()
	first := d.race.abort()
	second := d.second
	d.mu.Unlock()
	if first {
		d.countOutcome(false)
		d.first.deliver(review.Fail(review.FailureCancelled, "no longer waited for"))
	}
	for _, t := range [...]*ticket{d.first, second} {
		if t != nil {
			t.ended.Store(true)
			t.withdraw()
		}
	}
}

// noteLost reports whether a ticket that was lost with its session may go to another one.
func (d *hedgedCall) noteLost() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.race.noteLost()
}
