package initializer

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// Hold is the staged object of one held review. It makes calls of initializers, some of which may act at the same time. Its methods may be
// called concurrently.
//
// A machine decides the steps. One goroutine takes them, while there are any; the methods and the hosts tell the machine about calls that are over.
type Hold struct {
	stager     *Stager
	slot, room *memory.Reservation
	until      time.Time     // end of the review
	gone       chan struct{} // closed when the object is gone, and the slot free

	// Of the goroutine.
	lease staged.LeaseID // 0 while nothing is staged
	leave func()         // ends the renewal of lease

	mu       sync.Mutex // guards the fields below
	machine  machine
	turns    []*heldTurn     // the first one is the machine's
	stepping bool            // the goroutine runs
	bytes    int64           // of room
	outcome  string          // of the last call
	renewed  time.Time       // when the lease was granted or renewed last
	releases context.Context //nolint:containedctx // of the first Release
}

// heldTurn is a turn of the machine with its callers.
type heldTurn struct {
	turn

	callers []*call
	ask     func(i int, done func(review.Result)) (cancel func()) // nil without hosts
	ctx     context.Context                                       //nolint:containedctx // ends with the turn
	stop    context.CancelFunc
	begun   time.Time
	queued  time.Duration // how long it took until the initializers could act; 0 before
}

// call is a call of a turn with its caller.
type call struct {
	turn   *heldTurn
	state  *turnCall
	asking chan struct{}  // closed when unask is known; nil unless the hosts are being asked
	unask  func()         // ends the call of the hosts; nil before they are asked, and once they have answered
	asked  *review.Timing // of the hosts, once their call has ended
	done   func(review.Result)
	ended  chan struct{} // closed when done has returned
}

// Start asks the initializers of calls to act on an object, at the same time. pending are these initializers and those behind them, in
// order, as match.HookID.Pending has them; at least one. Neither side changes calls, object and pending afterwards. Start never blocks.
//
// With ask, the hosts of the initializers are asked over streams once the object is staged: ask has the contract of
// review.Backend.Start for the call with an index. Without, a controller acts through InitializerService, and there is one call. In both
// cases the calls end when an initializer refuses the object, and when the object is deleted.
//
// done is called exactly once for each call, from any goroutine, and never blocks. The returned function cancels a call: done is called before
// it returns, unless it was called before. ctx carries the trace; its end does not end the calls.
//
//nolint:revive // calls, the content and names to stage for them, and the two ends of the contract of a backend
func (h *Hold) Start(
	ctx context.Context, calls []review.Call, object []byte, pending []string,
	ask func(i int, done func(review.Result)) (cancel func()), done func(i int, r review.Result),
) (cancel func(i int)) {
	t := &heldTurn{turn: turn{object: object, pending: pending, hosts: ask != nil}, ask: ask, begun: time.Now()}
	latest := calls[0].Deadline
	t.calls = make([]turnCall, len(calls))
	for i, c := range calls {
		if c.Deadline.After(latest) {
			latest = c.Deadline
		}
		t.calls[i].pending = pending[max(0, slices.Index(pending, c.Hook.ID.Pending())):]
		t.callers = append(t.callers, &call{
			turn: t, state: &t.calls[i], done: func(r review.Result) { done(i, r) }, ended: make(chan struct{}),
		})
	}
	t.ctx, t.stop = context.WithDeadline(context.WithoutCancel(ctx), latest)
	h.mu.Lock()
	if large := h.stager.tooLarge(h.machine.base.GetKey().GetCluster(), len(object)); large != nil {
		t.err = large
	}
	released := h.machine.released
	if !released {
		h.turns = append(h.turns, t)
		h.wake()
	}
	h.mu.Unlock()
	if released {
		h.cancelAll(t)
	} else {
		context.AfterFunc(t.ctx, func() { h.expire(t) })
	}
	return func(i int) { h.cancel(t.callers[i]) }
}

// wake has the goroutine take the next steps. It needs mu.
func (h *Hold) wake() {
	if !h.stepping {
		h.stepping = true
		h.stager.running.Go(h.run)
	}
}

// run takes steps until there are none.
func (h *Hold) run() {
	for {
		h.mu.Lock()
		if h.machine.turn == nil && len(h.turns) > 0 {
			h.machine.turn = &h.turns[0].turn
		}
		a := h.machine.next(h.stager.options.Now())
		var t *heldTurn
		if len(h.turns) > 0 {
			t = h.turns[0]
			if t.ready && t.queued == 0 {
				t.queued = max(1, time.Since(t.begun))
			}
		}
		h.stepping = a.step != stepNone
		h.mu.Unlock()
		if a.step == stepNone {
			return
		}
		h.take(a, t)
	}
}

// take takes a step. The turn is nil only for the steps that end the hold.
func (h *Hold) take(a action, t *heldTurn) {
	store := h.stager.options.Store
	switch a.step {
	case stepCreate:
		begun := time.Now()
		written, lease, err := store.Create(t.ctx, a.object, leaseTTL)
		if err == nil {
			h.keep(t.ctx, lease, begun)
		}
		h.report(func(m *machine) { m.wrote(written, err) })
	case stepUpdate:
		written, err := store.Update(t.ctx, a.object.GetKey(), a.object.GetResourceVersion(), a.object)
		h.report(func(m *machine) { m.wrote(written, err) })
	case stepRemove:
		_, err := store.Delete(t.ctx, a.object.GetKey(), a.object.GetUid(), "")
		h.report(func(m *machine) { m.removed(err) })
	case stepAwait:
		o, err := store.Wait(t.ctx, h.known())
		h.report(func(m *machine) { m.read(o, err) })
	case stepAsk:
		for i, x := range t.callers {
			h.askHosts(i, x)
		}
	case stepEnd:
		for _, i := range a.calls {
			h.end(t.callers[i], func() (review.Result, string) { return h.result(t.callers[i], a.err) })
		}
	case stepOver:
		t.stop()
		h.mu.Lock()
		h.turns = h.turns[1:]
		h.mu.Unlock()
	case stepRevoke:
		h.revoke()
		h.report(func(m *machine) { m.revoked = true })
	case stepGone:
		h.report(func(m *machine) { m.gone = true })
		h.stager.metrics.end(h)
		h.room.Release()
		h.slot.Release()
		close(h.gone)
	case stepNone:
	}
}

// report tells the machine the result of a step, and accounts for the size of the staged object.
func (h *Hold) report(tell func(*machine)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tell(&h.machine)
	if h.machine.seen == nil || h.machine.gone {
		return
	}
	size := int64(len(h.machine.seen.GetObject().GetRaw()))
	h.room.Charge(size - h.bytes)
	h.room.Shrink(h.bytes - size)
	h.bytes = size
}

// revoke deletes the object.
func (h *Hold) revoke() {
	h.leave()
	h.mu.Lock()
	ctx, cancel := context.WithTimeout(h.releases, releaseTimeout)
	h.mu.Unlock()
	defer cancel()
	for ctx.Err() == nil {
		err := h.stager.options.Store.Revoke(ctx, h.lease)
		if err == nil {
			return
		}
		h.stager.options.Logger.Warn("the staged object of a review that has ended is not deleted yet", "uid", h.machine.base.GetReviewUid(), "error", err)
	}
}

// askHosts asks the hosts of an initializer, call i of its turn, unless the call is over.
func (h *Hold) askHosts(i int, x *call) {
	asking := make(chan struct{})
	defer close(asking)
	h.mu.Lock()
	over := x.state.over
	if !over {
		x.asking = asking
	}
	h.mu.Unlock()
	if over {
		return
	}
	unask := x.turn.ask(i, func(r review.Result) { h.answered(x, r) })
	h.mu.Lock()
	defer h.mu.Unlock()
	if x.asked == nil {
		x.asking, x.unask = nil, unask
	}
}

// answered ends a call with the result of its hosts, unless it is over.
func (h *Hold) answered(x *call, r review.Result) {
	h.mu.Lock()
	r.Timing.Queued += x.turn.queued
	x.asked, x.asking, x.unask = &r.Timing, nil, nil
	over := x.state.over
	h.mu.Unlock()
	if !over {
		h.end(x, func() (review.Result, string) { return r, outcomeAnswered })
	}
}

// cancel ends a call without a verdict.
func (h *Hold) cancel(x *call) {
	h.end(x, func() (review.Result, string) {
		r := review.Cancelled()
		r.Timing = h.timing(x)
		return r, outcomeCancelled
	})
}

// cancelAll ends the calls of a turn without a verdict.
func (h *Hold) cancelAll(t *heldTurn) {
	for _, x := range t.callers {
		h.cancel(x)
	}
}

// expire ends the calls of a turn whose time is over before it was its turn.
func (h *Hold) expire(t *heldTurn) {
	h.mu.Lock()
	waits := len(h.turns) > 0 && h.turns[0] != t
	h.mu.Unlock()
	if !waits {
		return
	}
	for _, x := range t.callers {
		h.end(x, func() (review.Result, string) { return h.result(x, t.ctx.Err()) })
	}
}

// end ends a call with a result, once the call of its hosts has ended. It returns when done was called. The last call ends the step that its turn is at.
func (h *Hold) end(x *call, result func() (review.Result, string)) {
	h.mu.Lock()
	over, asking := x.state.over, x.asking
	x.state.over = true
	last := len(x.turn.left()) == 0
	h.mu.Unlock()
	if over {
		<-x.ended
		return
	}
	if asking != nil {
		<-asking
	}
	h.mu.Lock()
	unask := x.unask
	h.mu.Unlock()
	if unask != nil {
		unask()
	}
	r, outcome := result()
	h.mu.Lock()
	h.outcome = outcome
	h.mu.Unlock()
	if last {
		x.turn.stop()
	}
	x.done(r)
	close(x.ended)
}

// Staged returns uid and resource version of the staged object as it is known here; empty before it was staged.
func (h *Hold) Staged() (uid, resourceVersion string) {
	o := h.known()
	return o.GetUid(), o.GetResourceVersion()
}

// known returns the staged object as it was written or read last; nil before.
func (h *Hold) known() *initializerv1.StagedObject {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.machine.seen
}

// Release ends the hold. It returns when the object is deleted, or when ctx ends: then that goes on in the background for a while, and
// at last the lease of the object lapses. It may be called several times.
func (h *Hold) Release(ctx context.Context) {
	h.mu.Lock()
	first, turns := !h.machine.released, slices.Clone(h.turns)
	h.machine.released = true
	if first {
		h.releases = context.WithoutCancel(ctx)
	}
	h.mu.Unlock()
	if first {
		for _, t := range turns {
			h.cancelAll(t)
		}
		h.mu.Lock()
		h.wake()
		h.mu.Unlock()
	}
	select {
	case <-h.gone:
	case <-ctx.Done():
	}
}
