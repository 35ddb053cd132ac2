package pool

import (
	"sync/atomic"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/fairqueue"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/hedge"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
)

var (
	_ stream.Ticket = (*ticket)(nil)
	_ hedge.First   = (*ticket)(nil)
)

// ticket is one call on its way through queues and sessions until it has its result.
type ticket struct {
	request *admissionv1.AdmissionRequest
	body    *stream.Body // of the request
	call    *review.Call
	index   int // of the call in its review
	done    func(i int, r review.Result)
	begun   time.Time

	ended    atomic.Bool
	slot     atomic.Pointer[stream.Slot] // where it was submitted last
	queue    atomic.Pointer[Pool]        // where it waited last
	waiting  *fairqueue.Entry[*ticket]   // its place there; guarded by the pool's lock
	queued   time.Time                   // when it began to wait; likewise
	attempts int                         // owned by the goroutine that places the ticket
	had      [MaxAttempts]string         // the instances that have had it; likewise
	lost     bool                        // a session ended while a handler may have had it; likewise

	pool   *Pool       // of the hook; nil when no host may serve it
	hedged *hedge.Call // nil unless the call may have two tickets
	hook   *hedge.Hook // records the latency of the call; nil unless calls of the hook are hedged
}

// Call implements [stream.Ticket].
func (t *ticket) Call() *review.Call { return t.call }

func (t *ticket) cluster() string { return t.request.GetCluster() }

// Body implements [stream.Ticket].
func (t *ticket) Body() *stream.Body { return t.body }

// Begun implements [stream.Ticket].
func (t *ticket) Begun() time.Time { return t.begun }

// Submitted implements [stream.Ticket].
func (t *ticket) Submitted(at *stream.Slot) {
	t.attempts++
	t.slot.Store(at)
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
	cancelled := review.Cancelled()
	cancelled.Timing = t.Timing()
	t.finish(cancelled)
	t.Withdraw()
}

// Ended implements [stream.Ticket] and [hedge.Attempt].
func (t *ticket) Ended() bool { return t.ended.Load() }

// End implements [hedge.Attempt].
func (t *ticket) End() bool { return !t.ended.Swap(true) }

// Timing implements [hedge.Attempt].
func (t *ticket) Timing() review.Timing {
	now := time.Now()
	if s := t.slot.Load(); s != nil {
		if spent, ok := s.Timing(t, now); ok {
			return spent
		}
		if t.queue.Load() == nil { // its result has left the session, and comes at this moment
			return review.Timing{Host: now.Sub(t.begun), Instance: s.Instance()}
		}
	}
	return review.Timing{Queued: now.Sub(t.begun)}
}

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
		s.Cancel(t)
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
	call := *t.call
	call.Mode = review.Hedge
	second := &ticket{
		request: t.request, body: t.body, call: &call, index: t.index, done: t.done, begun: now, pool: t.pool, hedged: c,
	}
	return second, func() bool { return stream.Submit(&s.Session, []*ticket{second}) > 0 }
}

// Overtaken implements [hedge.First]: the session that has the ticket counts as slow.
func (t *ticket) Overtaken(now time.Time) {
	at := t.slot.Load()
	if at == nil || t.queue.Load() != nil { // the time in the queue is not the session's
		return
	}
	at.Overtaken(t, now.Sub(t.begun), now)
}

// triedOn reports whether the process behind a member has the ticket already.
func (t *ticket) triedOn(x *Member) bool {
	at := t.slot.Load()
	return at != nil && at.Instance() == x.replica.Instance()
}
