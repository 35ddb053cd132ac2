package session

import (
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/fairqueue"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/hedge"
)

var _ hedge.First = (*ticket)(nil)

// ticket is one call on its way through queues and sessions until it has its result.
type ticket struct {
	batch *dispatcher.Batch
	body  *body // of the batch, for hosts; nil means that each makes it, without a trace
	index int   // in batch.Calls
	done  func(i int, r review.Result)
	begun time.Time

	ended    atomic.Bool
	slot     atomic.Pointer[slot]      // where it was submitted last
	queue    atomic.Pointer[pool]      // where it waited last
	waiting  *fairqueue.Entry[*ticket] // its place there; guarded by the pool's lock
	queued   time.Time                 // when it began to wait; likewise
	attempts int                       // owned by whoever places the ticket
	had      [MaxAttempts]string       // the instances that have had it; likewise
	lost     bool                      // a session ended while a handler may have had it; likewise

	pool   *pool       // of the hook; nil when no host may serve it
	hedged *hedge.Call // nil unless the call may have two tickets
	second bool        // it is the second of them
	hook   *hedge.Hook // records the latency of the call; nil unless calls of the hook are hedged
}

// slot is the place of a ticket on a session.
type slot struct {
	session *Session
	frame   uint64
}

func (t *ticket) call() *review.Call { return &t.batch.Calls[t.index] }

func (t *ticket) mode() review.Mode {
	if t.second {
		return review.Hedge
	}
	return t.call().Mode
}

// finish ends the ticket, unless it has ended already. A hedged call decides then whether the call has its result.
func (t *ticket) finish(r review.Result) {
	switch {
	case t.ended.Swap(true):
	case t.hedged != nil:
		t.hedged.Finish(t, r)
	default:
		t.Deliver(r)
	}
}

// cancel ends the call, wherever its tickets are.
func (t *ticket) cancel() {
	if t.hedged != nil {
		t.hedged.Cancel()
		return
	}
	t.finish(reviewOver())
	t.Withdraw()
}

// Ended implements [hedge.Attempt].
func (t *ticket) Ended() bool { return t.ended.Load() }

// End implements [hedge.Attempt].
func (t *ticket) End() bool { return !t.ended.Swap(true) }

// Withdraw implements [hedge.Attempt].
func (t *ticket) Withdraw() {
	if p := t.queue.Load(); p != nil {
		p.dequeue(t)
	}
	t.cancelOnSession()
}

// cancelOnSession gives the slot of an ended ticket back, if it has one.
func (t *ticket) cancelOnSession() {
	if s := t.slot.Load(); s != nil {
		s.session.cancel(s.frame, t)
	}
}

// Deliver implements [hedge.First].
func (t *ticket) Deliver(r review.Result) {
	if t.hook != nil && r.Verdict != nil {
		t.hook.Observe(time.Since(t.begun))
	}
	t.done(t.index, r)
}

// Second implements [hedge.First].
func (t *ticket) Second(c *hedge.Call, now time.Time) (hedge.Attempt, func() bool) {
	s := t.pool.spare(t.cluster(), now, t.triedOn)
	if s == nil {
		return nil, nil
	}
	second := &ticket{
		batch: t.batch, body: t.body, index: t.index, done: t.done, begun: now, pool: t.pool, hedged: c, second: true,
	}
	return second, func() bool { return s.submit([]*ticket{second}) > 0 }
}

// Overtaken implements [hedge.First]: the session that has the ticket counts as slow.
func (t *ticket) Overtaken(now time.Time) {
	at := t.slot.Load()
	if at == nil || t.queue.Load() != nil { // the time in the queue is not the session's
		return
	}
	at.session.sink.callOvertaken(t, now.Sub(t.begun), now)
}

// triedOn reports whether the process behind a member has the ticket already.
func (t *ticket) triedOn(x *poolMember) bool {
	at := t.slot.Load()
	return at != nil && at.session.instance == x.replica.instance
}

func (t *ticket) cluster() string { return t.batch.Request.GetCluster() }
