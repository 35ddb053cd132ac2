package session

import (
	"slices"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/fairqueue"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

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

	pool     *pool       // of the hook; nil when no host may serve it
	hedged   *hedgedCall // nil unless the call may have two tickets
	hedge    bool        // it is the second of them
	measured *hedging    // learns what the call has taken; nil when nobody wants to know
}

// slot is the place of a ticket on a session.
type slot struct {
	session *Session
	frame   uint64
}

// call is what the ticket stands for.
func (t *ticket) call() *review.Call { return &t.batch.Calls[t.index] }

// mode is why the hook is asked.
func (t *ticket) mode() review.Mode {
	if t.hedge {
		return review.Hedge
	}
	return t.call().Mode
}

// finish ends the ticket, unless it has ended already, and its call with it, unless that has another ticket out.
func (t *ticket) finish(r review.Result) {
	switch {
	case t.ended.Swap(true):
	case t.hedged != nil:
		t.hedged.finish(t, r)
	default:
		t.deliver(r)
	}
}

// deliver gives the call its result.
func (t *ticket) deliver(r review.Result) {
	if t.measured != nil && r.Verdict != nil {
		t.measured.delay.observe(time.Since(t.begun))
	}
	t.done(t.index, r)
}

// cancel ends the call, wherever its tickets are.
func (t *ticket) cancel() {
	if t.hedged != nil {
		t.hedged.cancel()
		return
	}
	t.finish(review.Fail(review.FailureCancelled, "no longer waited for"))
	t.withdraw()
}

// withdraw takes an ended ticket out of the queue and off the session where it is.
func (t *ticket) withdraw() {
	if p := t.queue.Load(); p != nil {
		p.dequeue(t)
	}
	t.cancelOnSession()
}

// cancelOnSession tells the session that has an ended ticket.
func (t *ticket) cancelOnSession() {
	if s := t.slot.Load(); s != nil {
		s.session.cancel(s.frame, t)
	}
}

// mayRetry reports whether a failed call may go to another replica. The rules:
//
//   - never past its deadline, never when nobody waits for it, and at most [MaxAttempts] times in all;
//   - what no handler has seen, because it was never handed over or was refused as not started, may go whatever its side
//     effects;
//   - what a handler may have seen may go when its session ended, if the hook has no side effects, and once: a review that
//     ends the session it is delivered on must not end a third. All calls that the session had are under suspicion, and
//     each goes alone;
//   - what a host has answered, be it that its handler failed, is its answer;
//   - a second ticket of a call never goes again: the first one is still there.
//
// An instance that has not had it is preferred.
func (t *ticket) mayRetry(f *review.Failure, now time.Time) bool {
	if t.ended.Load() || t.hedge || t.attempts >= MaxAttempts || !now.Before(t.call().Deadline) {
		return false
	}
	return f.NotStarted || f.Kind == review.FailureLost && withoutSideEffects(t) && t.noteLost()
}

// tried reports whether the process behind a session has had the ticket before.
func (t *ticket) tried(s *Session) bool {
	return t.attempts > 0 && slices.Contains(t.had[:t.attempts], s.instance)
}

// failedOn takes note of who had the ticket last.
func (t *ticket) failedOn(s *Session) { t.had[t.attempts-1] = s.instance }

// noteLost takes note that a session ended that may have been ended by the ticket. It reports whether another one may be
// tried.
func (t *ticket) noteLost() bool {
	if t.hedged != nil {
		return t.hedged.noteLost()
	}
	before := t.lost
	t.lost = true
	return !before
}

// countHedgeWin takes note that the session that has the ticket takes longer than another one.
func (t *ticket) countHedgeWin(now time.Time) {
	at := t.slot.Load()
	if at == nil || t.queue.Load() != nil { // the time in the queue is not the session's
		return
	}
	if x := (*at.session.pools.Load())[t.pool]; x != nil {
		x.pace.recordOvertaken(now.Sub(t.begun), now)
	}
}

// triedOn reports whether the process behind a member has the ticket already.
func (t *ticket) triedOn(x *poolMember) bool {
	at := t.slot.Load()
	return at != nil && at.session.instance == x.session.instance
}

// withoutSideEffects reports whether the hook may see the same request twice.
func withoutSideEffects(t *ticket) bool {
	switch t.call().Hook.SideEffects {
	case admissionregistrationv1.SideEffectClassNone:
		return true
	case admissionregistrationv1.SideEffectClassNoneOnDryRun:
		return t.batch.Request.GetDryRun()
	case admissionregistrationv1.SideEffectClassSome, admissionregistrationv1.SideEffectClassUnknown:
	}
	return false
}

// cluster is the cluster of the review.
func (t *ticket) cluster() string { return t.batch.Request.GetCluster() }
