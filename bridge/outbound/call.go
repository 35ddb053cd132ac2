package outbound

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/bridge/jsonreview"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// call is one call of a webhook. The first to finish it decides its result.
type call struct {
	review.Call
	cluster     string
	permit      callPermit
	reservation *memory.Reservation           // of its review, held while the client has the call
	booked      int64                         // there, for the answers; of the goroutine of the call
	request     *admissionv1.AdmissionRequest // nil for conversions
	review      *jsonreview.Review
	cancel      context.CancelFunc
	done        func(review.Result)
	once        sync.Once
	begun       time.Time
	sent        atomic.Pointer[sending] // nil until the request is sent
}

// sending is when a request was sent, and to which host and port.
type sending struct {
	at time.Time
	to string
}

// timing is where the time of a call has gone so far.
func (x *call) timing(now time.Time) review.Timing {
	s := x.sent.Load()
	if s == nil {
		return review.Timing{Queued: now.Sub(x.begun)}
	}
	return review.Timing{Queued: s.at.Sub(x.begun), Wire: now.Sub(s.at), Instance: s.to}
}

// finish ends the call, once. It may be called from any goroutine.
func (x *call) finish(r review.Result) {
	x.once.Do(func() {
		x.cancel()
		x.done(r)
	})
}

// abort implements aborter.
func (x *call) abort() { x.finish(review.Fail(review.FailureUnavailable, "%w", errClosed)) }

// enter lets a call in until it leaves.
func (c *Client) enter(x *call) *review.Failure {
	if !c.calls.add(x) {
		return notStarted(failure(review.FailureUnavailable, "%w", errClosed))
	}
	if f := c.limit.arrive(x.cluster); f != nil {
		c.calls.remove(x)
		return f
	}
	x.reservation.Retain() // which the review holds
	return nil
}

// book books memory of an answer until the call leaves: by then the verdict is booked by its receiver.
func (x *call) book(bytes int64) error {
	err := x.reservation.Grow(bytes)
	if err == nil {
		x.booked += bytes
	}
	return err
}

func (x *call) unbook() {
	x.reservation.Shrink(x.booked)
	x.booked = 0
}

func (c *Client) leave(x *call) {
	x.unbook()
	c.limit.depart(x.cluster)
	x.reservation.Release()
	c.calls.remove(x)
}

// run is the goroutine of a call.
func (c *Client) run(ctx context.Context, x *call) {
	defer c.leave(x)
	x.finish(c.review(ctx, x))
}

// review calls the webhook. A panic is a failure of this call alone.
func (c *Client) review(ctx context.Context, x *call) (result review.Result) {
	defer func() {
		if p := recover(); p != nil {
			result = review.Fail(review.FailurePanic, "panic while calling the webhook: %v\n%s", p, debug.Stack())
		}
	}()
	a, f := c.prepare(ctx, x)
	if f != nil {
		return review.Result{Failure: f}
	}
	answer, f := c.post(ctx, a)
	if f == nil {
		result.Verdict, f = a.verdict(ctx, answer)
	}
	result.Failure, result.Timing = f, x.timing(time.Now())
	return result
}

// post waits until the call may start, sends the request and reads the answer.
func (c *Client) post(ctx context.Context, a *attempt) (*jsonreview.Answer, *review.Failure) {
	x := a.call
	t, f := c.targets.acquire(a.endpoint, x.cluster)
	if f != nil {
		return nil, f
	}
	defer c.targets.release(t, x.cluster)
	x.permit.cluster, x.permit.gate = x.cluster, &t.gate
	waitedFor, started := c.limit.wait(ctx, &x.permit)
	if !started {
		return nil, notStarted(a.endOf(ctx, waitedFor))
	}
	defer c.limit.leave(&x.permit)
	x.sent.Store(&sending{time.Now(), a.url.Host})
	return c.send(ctx, t, a)
}
