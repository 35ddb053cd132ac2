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

// Hold is the staged object of one held review. Its calls are made one after the other. Its methods may be called concurrently.
type Hold struct {
	stager     *Stager
	slot, room *memory.Reservation
	name       stagedName
	until      time.Time // end of the review

	turn chan struct{} // holds a token while a goroutine uses the fields below
	// Of the holder of the turn.
	base  *initializerv1.StagedObject // the staged object without its content and its pending names
	lease staged.LeaseID              // 0 while nothing is staged
	leave func()                      // ends the renewal of lease
	names []string                    // pending names that were staged last, without those that initializers have added
	bytes int64                       // of room

	mu      sync.Mutex
	seen    *initializerv1.StagedObject // the staged object as it was written or read last; nil before; written by the holder of the turn
	calls   map[*call]struct{}          // that are not done
	outcome string                      // of the last call
	renewed time.Time                   // when the lease was granted or renewed last
	ended   bool                        // Release was called

	gone chan struct{} // closed when the object is gone, and the slot free
}

// Start asks the initializer of a call to act on an object. pending are the names of that initializer and of those behind it; at least
// one. Neither side changes object and pending afterwards. Start never blocks.
//
// With ask, the hosts of the initializer are asked over streams once the object is staged: ask has the contract of
// dispatcher.Backend.Start for one call. Without, a controller acts through InitializerService. In both cases the call ends when an
// initializer refuses the object, and when the object is deleted.
//
// done is called exactly once, from any goroutine, and never blocks. The returned function cancels the call: done is called before it
// returns, unless it was called before. ctx carries the trace; its end does not end the call.
//
//nolint:revive // a call, the content and names to stage for it, and the two ends of the contract of a backend
func (h *Hold) Start(
	ctx context.Context, c review.Call, object []byte, pending []string, ask func(done func(review.Result)) (cancel func()), done func(review.Result),
) (cancel func()) {
	ctx, stop := context.WithDeadline(context.WithoutCancel(ctx), c.Deadline)
	x := &call{hold: h, object: object, pending: pending, ask: ask, done: done, stop: stop, begun: time.Now()}
	if !h.add(x) {
		x.cancel()
		return x.cancel
	}
	h.stager.running.Go(func() {
		defer stop()
		x.run(ctx)
	})
	return x.cancel
}

// add counts a call that begins; false once the hold is released.
func (h *Hold) add(x *call) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return false
	}
	if h.calls == nil {
		h.calls = map[*call]struct{}{}
	}
	h.calls[x] = struct{}{}
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
	h.turn <- struct{}{} // cancelled calls give it back soon
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

// call is one call of an initializer.
type call struct {
	hold    *Hold
	object  []byte
	pending []string
	ask     func(done func(review.Result)) (cancel func())
	stop    context.CancelFunc
	begun   time.Time
	staged  atomic.Int64 // how long it took until the initializer could act, in ns; 0 before

	finished sync.Once
	done     func(review.Result)
}

// cancel ends the call without a verdict.
func (x *call) cancel() {
	x.stop()
	r := review.Cancelled()
	r.Timing = x.timing()
	x.finish(r, outcomeCancelled)
}

// finish calls done, once.
func (x *call) finish(r review.Result, outcome string) {
	x.finished.Do(func() {
		h := x.hold
		h.mu.Lock()
		delete(h.calls, x)
		h.outcome = outcome
		h.mu.Unlock()
		x.done(r)
	})
}

// run stages the object, and waits for what becomes of it.
func (x *call) run(ctx context.Context) {
	h := x.hold
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		x.finish(x.result(ctx, ctx.Err()))
		return
	}
	verdict := make(chan review.Result, 1)
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	err := x.stage(ctx)
	if err == nil {
		x.staged.Store(int64(time.Since(x.begun)))
		if x.ask != nil {
			cancel := x.ask(func(r review.Result) { verdict <- r; stop() })
			defer cancel()
		}
		err = x.wait(waiting)
	}
	select {
	case r := <-verdict:
		r.Timing.Queued += time.Duration(x.staged.Load())
		x.finish(r, outcomeAnswered)
	default:
		x.finish(x.result(ctx, err))
	}
}

// stage has the object staged for the initializer to act on. Without an error the initializer may have acted already.
func (x *call) stage(ctx context.Context) error {
	h, now := x.hold, x.hold.stager.options.Now
	if large := h.stager.tooLarge(h.base.GetKey().GetCluster(), len(x.object)); large != nil {
		return large
	}
	if h.lease == 0 {
		return h.create(ctx, x.object, x.pending)
	}
	for names := (Names{Before: h.names, Now: x.pending}); !Acted(h.seen, names); {
		next, err := Sync(h.seen, x.object, names, now())
		if err != nil {
			return err
		}
		if slices.Equal(next.GetPending(), h.seen.GetPending()) && same(x.object, h.seen.GetObject().GetRaw()) {
			h.names = x.pending
			return nil
		}
		written, err := h.stager.options.Store.Update(ctx, h.base.GetKey(), h.seen.GetResourceVersion(), next)
		if err == nil {
			h.names = x.pending
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

// create stages the object for the first time. One of the same review, which another dispatcher had before, is deleted.
func (h *Hold) create(ctx context.Context, object []byte, pending []string) error {
	store, names := h.stager.options.Store, 1
	for {
		o := with(h.base)
		o.Object, o.Pending, o.Waiting = &admissionv1.Object{Raw: object}, pending, o.Created
		begun := time.Now()
		written, lease, err := store.Create(ctx, o, leaseTTL)
		if err == nil {
			h.names = pending
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

// wait waits until the initializer has acted.
func (x *call) wait(ctx context.Context) error {
	for Progress(x.hold.seen, x.pending) == Waiting {
		if err := x.hold.next(ctx); err != nil {
			return err
		}
	}
	return nil
}
