package outbound

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// call is one webhook that is asked. Whoever finishes it first decides its result.
type call struct {
	dispatcher.Call
	cluster  string
	pass     pass
	lease    *memory.Lease // of its review, held while the client has the call
	question *question
	cancel   context.CancelFunc
	done     func(review.Result)
	once     sync.Once
}

// finish ends the call, once. It may be called from any goroutine.
func (x *call) finish(r review.Result) {
	x.once.Do(func() {
		x.cancel()
		x.done(r)
	})
}

// run is the goroutine of a call.
func (c *Client) run(ctx context.Context, x *call) {
	defer c.leave(x)
	x.finish(c.ask(ctx, x))
}

// ask calls the webhook. A panic is a failure of this call alone.
func (c *Client) ask(ctx context.Context, x *call) (result review.Result) {
	defer func() {
		if p := recover(); p != nil {
			result = review.Fail(review.FailurePanic, "panic while calling the webhook: %v\n%s", p, debug.Stack())
		}
	}()
	begun := time.Now()
	e, f := c.prepare(ctx, x)
	if f != nil {
		return review.Result{Failure: f}
	}
	t, f := c.targets.acquire(e.endpoint, x.cluster)
	if f != nil {
		return review.Result{Failure: f}
	}
	defer c.targets.release(t, x.cluster)
	if f = c.wait(ctx, t, e); f != nil {
		return review.Result{Failure: f, Timing: review.Timing{Queued: time.Since(begun)}}
	}
	defer c.all.leave(&x.pass)
	sent := time.Now()
	result.Verdict, result.Failure = c.exchange(ctx, t, e)
	result.Timing = review.Timing{Queued: sent.Sub(begun), Wire: time.Since(sent), Instance: e.url.Host}
	return result
}

// wait lets a call go on among the calls to its target and among all calls. Then it leaves.
func (c *Client) wait(ctx context.Context, t *target, e *exchange) *review.Failure {
	if waitedFor, in := c.all.wait(ctx, &e.call.pass, t, e.call.cluster); !in {
		return notYet(e.endOf(ctx, waitedFor))
	}
	return nil
}
