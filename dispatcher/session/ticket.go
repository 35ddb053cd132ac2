package session

import (
	"container/list"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// ticket is one call on its way through queues and sessions until it has its result.
type ticket struct {
	batch  *dispatcher.Batch
	index  int // in batch.Calls
	done   func(i int, r review.Result)
	begun  time.Time
	parent trace.SpanContext // of the review

	ended    atomic.Bool
	at       atomic.Pointer[seat] // where it was submitted last
	queue    atomic.Pointer[pool] // where it waited last
	element  *list.Element        // in queue, nil while it does not wait; guarded by the pool's lock
	queued   time.Time            // when it began to wait; likewise
	attempts int                  // owned by whoever places the ticket
	avoid    *Session             // the session that failed it last; likewise
	lost     bool                 // a session ended while a handler may have had it; likewise
}

// seat is the place of a ticket on a session.
type seat struct {
	session *Session
	frame   uint64
}

// call is what the ticket stands for.
func (t *ticket) call() *dispatcher.Call { return &t.batch.Calls[t.index] }

// finish delivers the result, unless there was one already.
func (t *ticket) finish(r review.Result) {
	if t.ended.CompareAndSwap(false, true) {
		t.done(t.index, r)
	}
}

// cancel ends the ticket, wherever it is.
func (t *ticket) cancel() {
	t.finish(review.Fail(review.FailureCancelled, "no longer waited for"))
	if p := t.queue.Load(); p != nil {
		p.forget(t)
	}
	t.leave()
}

// leave tells the session that has an ended ticket.
func (t *ticket) leave() {
	if s := t.at.Load(); s != nil {
		s.session.cancel(s.frame, t)
	}
}

// again reports whether a failed call may go to another replica. What no handler has seen always may; anything else only
// if the hook has no side effects, and only once: a review that ends the session it is delivered on must not end another.
func (t *ticket) again(f *review.Failure, now time.Time) bool {
	if t.ended.Load() || t.attempts >= MaxAttempts || !now.Before(t.call().Deadline) {
		return false
	}
	return f.NotStarted || f.Kind == review.FailureLost && !t.lost && withoutSideEffects(t)
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
