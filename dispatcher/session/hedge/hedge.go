// Package hedge sends slow calls to a second replica. It decides when a call gets a second attempt, and which result is
// the call's. It knows replicas by [First] and [Attempt] alone, which the owner of the sessions implements.
//
// The rules: a call gets a second attempt after a delay, once, on another instance with spare capacity, so never while
// calls of the hook wait. Second attempts are at most a percentage of all calls. The first verdict counts, and the other
// attempt is cancelled. The caller of [CallSet.Add] passes only calls that decide and have no side effects.
package hedge

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// The limits of hedging.
const (
	// DefaultPercent is the most second attempts, in percent of all calls of a hook, where the route does not say.
	DefaultPercent = 5
	// Burst is the most second attempts that a hook may have saved up: a quiet time does not become a burst.
	Burst = 10
	// Samples is how many verdicts of a hook have to come before their latency sets the delay.
	Samples = 32
	// Window is about how many calls of a hook count as its latest.
	Window = 1024
)

// Attempt is one try of a call. Its methods may be called concurrently.
type Attempt interface {
	// Ended reports whether the attempt has a result, or needs none any more.
	Ended() bool
	// End ends the attempt without a result. It returns false if the attempt had ended before.
	End() bool
	// Timing returns where the time of an attempt without a result has gone so far.
	Timing() review.Timing
	// Withdraw takes an attempt that has ended out of the queue, or off the replica that has it.
	Withdraw()
}

// First is the first attempt of a call.
type First interface {
	Attempt
	// Second prepares an attempt of the call c on another instance with spare capacity, which send hands over unless the
	// capacity has gone. Both are nil if there is no such instance.
	Second(c *Call, now time.Time) (second Attempt, send func() bool)
	// Overtaken records that a second attempt, which was sent later, had the verdict first.
	Overtaken(now time.Time)
	// Deliver gives the call its result. It is called once.
	Deliver(r review.Result)
}

// Hook is the budget and the latency of one hook. The zero value is ready for use. All methods may be called concurrently.
type Hook struct {
	budget  budget
	latency latencies
}

// Earn adds one call to the budget. It returns the delay after which the call gets a second attempt; 0 while that is not
// known.
func (h *Hook) Earn(o match.Hedge) (delay time.Duration) {
	percent := o.Percent
	if percent == 0 {
		percent = DefaultPercent
	}
	h.budget.earn(percent)
	if o.After > 0 {
		return o.After
	}
	return h.latency.p95()
}

// Observe records how long a call took until its verdict.
func (h *Hook) Observe(d time.Duration) { h.latency.observe(d) }

// Metrics count the calls whose delay was over, by outcome.
type Metrics struct {
	Vec                                 *prometheus.CounterVec
	won, lost, deniedBudget, noCapacity prometheus.Counter
}

// NewMetrics makes the counters. The caller registers Vec.
func NewMetrics() *Metrics {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "portcullis_host_hedges_total",
		Help: "Calls that had not answered after the delay of their route: sent to a second replica, whose verdict " +
			"came first or not, or not sent there for want of budget or of a replica with spare capacity.",
	}, []string{"outcome"})
	return &Metrics{
		Vec: v, won: v.WithLabelValues("won"), lost: v.WithLabelValues("lost"),
		deniedBudget: v.WithLabelValues("denied_budget"), noCapacity: v.WithLabelValues("no_capacity"),
	}
}

// CallSet is the hedged calls of one review, with one timer for all of them. [CallSet.Add] comes before [CallSet.Arm], from one
// goroutine.
type CallSet struct {
	metrics *Metrics
	calls   []*Call      // by due, once armed
	open    atomic.Int64 // calls without a result

	mu    sync.Mutex
	next  int         // the call that is due next
	timer *time.Timer // nil until Arm, and once all calls have a result
}

// NewCallSet makes a call set without calls.
func NewCallSet(m *Metrics) *CallSet { return &CallSet{metrics: m} }

// Add makes a call of its first attempt, which has not been sent yet. The call gets a second one when it is due.
func (s *CallSet) Add(first First, h *Hook, due time.Time) *Call {
	c := &Call{set: s, hook: h, first: first, due: due, race: newRace()}
	s.calls = append(s.calls, c)
	s.open.Add(1)
	return c
}

// Arm starts the timer. The first attempts have been sent.
func (s *CallSet) Arm() {
	slices.SortStableFunc(s.calls, func(x, y *Call) int { return x.due.Compare(y.due) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open.Load() > 0 {
		s.timer = time.AfterFunc(time.Until(s.calls[0].due), s.fire)
	}
}

// fire sends the second attempts that are due. It never blocks.
func (s *CallSet) fire() {
	now := time.Now()
	for c := s.nextDue(now); c != nil; c = s.nextDue(now) {
		c.sendSecond(now)
	}
}

// nextDue returns the next call that is due; nil if there is none yet, for which the timer is set, or none at all.
func (s *CallSet) nextDue(now time.Time) *Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil || s.next == len(s.calls) {
		return nil
	}
	c := s.calls[s.next]
	if c.due.After(now) {
		s.timer.Reset(c.due.Sub(now))
		return nil
	}
	s.next++
	return c
}

// callEnded stops the timer with the last call.
func (s *CallSet) callEnded() {
	if s.open.Add(-1) > 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}
