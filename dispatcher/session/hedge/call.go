package hedge

import (
	"sync"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Call is one call of a hook with up to two attempts. All methods may be called concurrently. No method of an attempt is
// called under the lock.
type Call struct {
	set   *CallSet
	hook  *Hook
	first First
	due   time.Time // when the second attempt is sent

	mu     sync.Mutex
	race   race
	second Attempt // nil until it is sent
}

// sendSecond sends the second attempt, if another instance has spare capacity and the budget allows it.
func (c *Call) sendSecond(now time.Time) {
	if c.first.Ended() {
		return
	}
	second, send := c.first.Second(c, now)
	switch {
	case second == nil:
		c.set.metrics.noCapacity.Inc()
	case !c.hook.budget.spend():
		c.set.metrics.deniedBudget.Inc()
	case !c.addSecond(second):
		c.hook.budget.refund()
	case !send():
		c.hook.budget.refund()
		c.set.metrics.noCapacity.Inc()
		c.takeBackSecond()
	case second.Ended(): // the first attempt was quicker
		second.Withdraw()
	}
}

// addSecond returns false if the call needs no second attempt any more.
func (c *Call) addSecond(second Attempt) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.race.join() {
		return false
	}
	c.second = second
	return true
}

// takeBackSecond removes a second attempt that was never sent.
func (c *Call) takeBackSecond() {
	c.mu.Lock()
	result, ends := c.race.withdraw()
	c.second = nil
	c.mu.Unlock()
	if ends {
		c.deliver(c.first, result)
	}
}

// Finish takes the result of an attempt, which has ended. If it is the result of the call, the call delivers it and
// withdraws the other attempt.
func (c *Call) Finish(a Attempt, r review.Result) {
	c.mu.Lock()
	result, ends := c.race.arrive(r)
	other := c.second
	if a == other {
		other = c.first
	}
	c.mu.Unlock()
	if !ends {
		return
	}
	if other != nil && other.End() {
		if other == c.first {
			c.first.Overtaken(time.Now())
		}
		other.Withdraw()
	}
	c.deliver(a, result)
}

// deliver is called once, unless the call is cancelled.
func (c *Call) deliver(winner Attempt, r review.Result) {
	c.countOutcome(winner != c.first && r.Verdict != nil)
	c.first.Deliver(r)
}

// countOutcome counts the outcome of the second attempt, and closes the call.
func (c *Call) countOutcome(won bool) {
	c.mu.Lock()
	second := c.second
	c.mu.Unlock()
	switch {
	case second == nil:
	case won:
		c.set.metrics.won.Inc()
	default:
		c.set.metrics.lost.Inc()
	}
	c.set.callEnded()
}

// Cancel ends the call, unless it has a result, and withdraws its attempts.
func (c *Call) Cancel() {
	c.mu.Lock()
	aborted, second := c.race.abort(), c.second
	c.mu.Unlock()
	if aborted {
		c.countOutcome(false)
		c.first.Deliver(c.cancelled(second))
	}
	for _, a := range [...]Attempt{c.first, second} {
		if a != nil {
			a.End()
			a.Withdraw()
		}
	}
}

// cancelled is the result of a call that is cancelled, with the time of the attempt that is outstanding: the first one, if both are.
func (c *Call) cancelled(second Attempt) review.Result {
	r, outstanding := review.Cancelled(), Attempt(c.first)
	if c.first.Ended() && second != nil {
		outstanding = second
	}
	r.Timing = outstanding.Timing()
	return r
}

// MayRetryLost reports whether an attempt whose session ended may go to another replica, and records that one did.
func (c *Call) MayRetryLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.race.mayRetryLost()
}
