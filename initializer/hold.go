package initializer

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/initializer/staged"
)

// Hold is the staged object of one held review. It makes calls of initializers, some of which may act at the same time. Its methods may be
// called concurrently.
type Hold struct {
	stager     *Stager
	slot, room *memory.Reservation
	name       stagedName
	until      time.Time // end of the review

	turns chan struct{} // holds a token while a turn uses the fields below
	// Of that turn.
	base  *initializerv1.StagedObject // the staged object without its content and its pending initializers
	lease staged.LeaseID              // 0 while nothing is staged
	leave func()                      // ends the renewal of lease
	names []string                    // pending initializers that were staged last, without those that initializers have added
	bytes int64                       // of room

	mu      sync.Mutex
	seen    *initializerv1.StagedObject // the staged object as it was written or read last; nil before; written by that turn
	calls   map[*call]struct{}          // that are not done
	outcome string                      // of the last call
	renewed time.Time                   // when the lease was granted or renewed last
	ended   bool                        // Release was called

	gone chan struct{} // closed when the object is gone, and the slot free
}

// Start asks the initializers of calls to act on an object, at the same time. pending are these initializers and those behind them, in
// order, as match.HookID.Pending has them; at least one. Neither side changes calls, object and pending afterwards. Start never blocks.
//
// With ask, the hosts of the initializers are asked over streams once the object is staged: ask has the contract of
// dispatcher.Backend.Start for the call with an index. Without, a controller acts through InitializerService, and there is one call. In both
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
	t := &turn{hold: h, object: object, pending: pending, ask: ask, begun: time.Now()}
	latest := calls[0].Deadline
	for _, c := range calls {
		if c.Deadline.After(latest) {
			latest = c.Deadline
		}
	}
	ctx, t.stop = context.WithDeadline(context.WithoutCancel(ctx), latest)
	t.left.Store(int32(len(calls)))
	for i, c := range calls {
		over, end := context.WithCancel(context.WithoutCancel(ctx))
		t.calls = append(t.calls, &call{
			turn: t, pending: pending[max(0, slices.Index(pending, c.Hook.ID.Pending())):], over: over, end: end,
			done: func(r review.Result) { done(i, r) },
		})
	}
	if !h.add(t) {
		t.cancel()
	} else {
		h.stager.running.Go(func() {
			defer t.stop()
			t.run(ctx)
		})
	}
	return func(i int) { t.calls[i].cancel() }
}

// add counts calls that begin; false once the hold is released.
func (h *Hold) add(t *turn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return false
	}
	if h.calls == nil {
		h.calls = map[*call]struct{}{}
	}
	for _, x := range t.calls {
		h.calls[x] = struct{}{}
	}
	return true
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
	return h.seen
}

// see remembers the staged object, and accounts for its size.
func (h *Hold) see(o *initializerv1.StagedObject) {
	size := int64(len(o.GetObject().GetRaw()))
	h.room.Charge(size - h.bytes)
	h.room.Shrink(h.bytes - size)
	h.bytes = size
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = o
}

// Release ends the hold. It returns when the object is deleted, or when ctx ends: then that goes on in the background for a while, and
// at last the lease of the object lapses. It may be called several times.
func (h *Hold) Release(ctx context.Context) {
	h.mu.Lock()
	first, calls := !h.ended, slices.Collect(maps.Keys(h.calls))
	h.ended = true
	h.mu.Unlock()
	if first {
		for _, x := range calls {
			x.cancel()
		}
		h.stager.running.Go(func() { h.end(context.WithoutCancel(ctx)) })
	}
	select {
	case <-h.gone:
	case <-ctx.Done():
	}
}

// end deletes the object, and frees the slot.
func (h *Hold) end(ctx context.Context) {
	h.turns <- struct{}{} // cancelled calls give it back soon
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if h.lease != 0 {
		h.leave()
	}
	for h.lease != 0 && ctx.Err() == nil {
		err := h.stager.options.Store.Revoke(ctx, h.lease)
		if err == nil {
			break
		}
		h.stager.options.Logger.Warn("the staged object of a review that has ended is not deleted yet", "uid", h.base.GetReviewUid(), "error", err)
	}
	h.stager.metrics.end(h)
	h.room.Release()
	h.slot.Release()
	close(h.gone)
}

// turn is calls of initializers that act at the same time: of one, mostly.
type turn struct {
	hold    *Hold
	object  []byte
	pending []string // of the first call, and of those behind it
	ask     func(i int, done func(review.Result)) (cancel func())
	calls   []*call
	left    atomic.Int32       // calls that are not done
	stop    context.CancelFunc // ends the turn
	begun   time.Time
	staged  atomic.Int64 // how long it took until the initializers could act, in ns; 0 before
}

// call is one call of an initializer.
type call struct {
	turn    *turn
	pending []string        // its initializer, and those behind it
	over    context.Context //nolint:containedctx // ends with the call
	end     context.CancelFunc

	ending atomic.Bool // the result of the hosts does not count any more
	asking sync.Mutex
	unask  func()                        // ends the call of the hosts; nil before they are asked
	asked  atomic.Pointer[review.Timing] // of their call, once it has ended

	finished sync.Once
	done     func(review.Result)
}

// cancel ends the calls without a verdict.
func (t *turn) cancel() {
	for _, x := range t.calls {
		x.cancel()
	}
}

// cancel ends the call without a verdict.
func (x *call) cancel() {
	r := review.Cancelled()
	r.Timing = x.timing()
	x.finish(r, outcomeCancelled)
}

// finish calls done, once. The last call ends the turn.
func (x *call) finish(r review.Result, outcome string) {
	x.finished.Do(func() {
		h := x.turn.hold
		h.mu.Lock()
		delete(h.calls, x)
		h.outcome = outcome
		h.mu.Unlock()
		x.end()
		if x.turn.left.Add(-1) == 0 {
			x.turn.stop()
		}
		x.done(r)
	})
}

// askHosts asks the hosts of the initializer, call i of the turn, unless the call is over. The end of the call ends that.
func (x *call) askHosts(i int) {
	x.asking.Lock()
	defer x.asking.Unlock()
	if x.over.Err() != nil {
		return
	}
	x.unask = x.turn.ask(i, func(r review.Result) {
		r.Timing.Queued += time.Duration(x.turn.staged.Load())
		x.asked.Store(&r.Timing)
		if !x.ending.Load() {
			x.finish(r, outcomeAnswered)
		}
	})
	context.AfterFunc(x.over, x.unask)
}

// hostTiming ends the call of the hosts, whose result does not count any more, and returns its timing; nil if they were not asked.
func (x *call) hostTiming() *review.Timing {
	x.ending.Store(true)
	x.asking.Lock()
	cancel := x.unask
	x.asking.Unlock()
	if cancel == nil {
		return nil
	}
	cancel()
	return x.asked.Load()
}

// run stages the object, and waits for its initializers.
func (t *turn) run(ctx context.Context) {
	h := t.hold
	var err error
	select {
	case h.turns <- struct{}{}:
		defer func() { <-h.turns }()
		if err = t.stage(ctx); err == nil {
			t.staged.Store(int64(time.Since(t.begun)))
			for i, x := range t.calls {
				if t.ask != nil {
					x.askHosts(i)
				}
			}
			err = t.wait(ctx)
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	for _, x := range t.calls {
		if x.over.Err() == nil {
			x.finish(x.result(ctx, err))
		}
	}
}

// stage has the object staged for the initializer to act on. Without an error the initializer may have acted already.
func (t *turn) stage(ctx context.Context) error {
	h, now := t.hold, t.hold.stager.options.Now
	if large := h.stager.tooLarge(h.base.GetKey().GetCluster(), len(t.object)); large != nil {
		return large
	}
	if h.lease == 0 {
		return h.create(ctx, t)
	}
	for names := (Names{Before: h.names, Now: t.pending, Together: len(t.calls)}); !Acted(h.seen, names); {
		next, err := Sync(h.seen, t.object, names, now())
		if err != nil {
			return err
		}
		asked := max(next.GetTogether(), 1) == max(h.seen.GetTogether(), 1) && slices.Equal(next.GetPending(), h.seen.GetPending())
		if asked && same(t.object, h.seen.GetObject().GetRaw()) {
			h.names = t.pending
			return nil
		}
		written, err := h.stager.options.Store.Update(ctx, h.base.GetKey(), h.seen.GetResourceVersion(), next)
		if err == nil {
			h.names = t.pending
			h.see(written)
			return nil
		}
		if !errors.Is(err, staged.ErrConflict) {
			return err
		}
		if err := h.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// same reports whether two objects are equal.
func same(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	patch, err := conversion.DiffPatch(a, b)
	return err == nil && patch == nil
}

// create stages the object for the first time. It deletes an object of the same review that another dispatcher has staged.
func (h *Hold) create(ctx context.Context, t *turn) error {
	store, names := h.stager.options.Store, 1
	for {
		o := with(h.base)
		o.Object, o.Pending, o.Waiting = &admissionv1.Object{Raw: t.object}, t.pending, o.Created
		o.Together = uint32(len(t.calls))
		begun := time.Now()
		written, lease, err := store.Create(ctx, o, leaseTTL)
		if err == nil {
			h.names = t.pending
			h.see(written)
			h.keep(ctx, lease, begun)
			return nil
		}
		var exists *staged.ExistsError
		if !errors.As(err, &exists) {
			return err
		}
		refused := Create(exists.Object, h.base.GetReviewUid())
		switch {
		case refused == nil:
			_, err := store.Delete(ctx, h.base.GetKey(), exists.Object.GetUid(), "")
			if err != nil && !errors.Is(err, staged.ErrNotFound) && !errors.Is(err, staged.ErrConflict) {
				return err
			}
		case h.name.generated() && names < maxNames:
			names++
			h.base = with(h.base)
			h.base.Key = renamed(h.base.GetKey(), h.name.next())
		default:
			return &existsError{exists.Object, refused}
		}
	}
}

// renamed returns a key with another name.
func renamed(k *initializerv1.StagedKey, name string) *initializerv1.StagedKey {
	return &initializerv1.StagedKey{Cluster: k.GetCluster(), Resource: k.GetResource(), Namespace: k.GetNamespace(), Name: name}
}

// next waits for the next change of the object by another writer.
func (h *Hold) next(ctx context.Context) error {
	o, err := h.stager.options.Store.Wait(ctx, h.seen)
	if err == nil {
		h.see(o)
	}
	return err
}

// wait waits until all initializers have acted, and ends the calls of those that have.
func (t *turn) wait(ctx context.Context) error {
	for {
		waiting := false
		for _, x := range t.calls {
			switch {
			case x.over.Err() != nil:
			case Progress(t.hold.seen, x.pending) == Waiting:
				waiting = true
			default:
				x.finish(x.result(ctx, nil))
			}
		}
		if !waiting {
			return nil
		}
		if err := t.hold.next(ctx); err != nil {
			return err
		}
	}
}
