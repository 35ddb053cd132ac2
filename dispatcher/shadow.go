package dispatcher

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/shadow"
	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// Limits of shadow calls in flight in one dispatcher, of one cluster while no other has any. All together have twice as much, and a cluster at
// most as much as it leaves free. A call beyond them is not made, and counted as dropped.
const (
	// MaxShadowCalls is the number of calls.
	MaxShadowCalls = 256
	// MaxShadowBytes is the memory of their reviews, each counted once for each call: the size of its reservation, or the
	// size of its objects if that is larger. The bound leaves memory to reviews that decide.
	MaxShadowBytes = 32 << 20
)

// shadows holds the shadow calls in flight. They may end later than the review that started them. All methods may be called
// concurrently.
type shadows struct {
	mu     sync.Mutex
	calls  map[*shadowCall]struct{}
	slots  *memory.Ledger // a call is one
	room   *memory.Ledger // of shadowCall.bytes
	closed bool
	idle   chan struct{} // closed when closed is set and calls is empty
}

func newShadows() (*shadows, error) {
	slots, err := memory.New(memory.Options{Total: 2 * MaxShadowCalls})
	if err != nil {
		return nil, err
	}
	room, err := memory.New(memory.Options{Total: 2 * MaxShadowBytes})
	if err != nil {
		return nil, err
	}
	return &shadows{calls: make(map[*shadowCall]struct{}), slots: slots, room: room, idle: make(chan struct{})}, nil
}

// addShadow adds a call and retains the reservation of its review; false if a limit is reached or after refuseMore.
func (s *shadows) addShadow(c *shadowCall) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	var err error
	if c.slot, err = s.slots.Reserve(c.request.Admission.GetCluster(), 1); err != nil {
		return false
	}
	if c.room, err = s.room.Reserve(c.request.Admission.GetCluster(), int64(c.bytes)); err != nil {
		c.slot.Release()
		return false
	}
	if !c.request.Reservation.Retain() {
		c.slot.Release()
		c.room.Release()
		return false
	}
	s.calls[c] = struct{}{}
	return true
}

func (s *shadows) removeShadow(c *shadowCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, c)
	c.slot.Release()
	c.room.Release()
	c.request.Reservation.Release()
	c.cancelContext()
	if s.closed && len(s.calls) == 0 {
		close(s.idle)
	}
}

// refuseMore makes addShadow return false from now on.
func (s *shadows) refuseMore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && len(s.calls) == 0 {
		close(s.idle)
	}
	s.closed = true
}

func (s *shadows) cancelAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.calls {
		c.cancelContext()
	}
}

// Close ends shadow calls: no more are started, and it waits for those in flight until they or ctx have ended, then cancels
// the rest. It may be called more than once. Reviews are still judged.
func (d *Dispatcher) Close(ctx context.Context) {
	d.shadows.refuseMore()
	select {
	case <-d.shadows.idle:
		return
	case <-ctx.Done():
	}
	d.shadows.cancelAll()
	<-d.shadows.idle
}

// shadowCall is one call of a hook in shadow. It has a goroutine of its own, so that neither the review nor the backend waits;
// [Dispatcher.Close] waits for it. It ends with its result, at its deadline, or by Close, whichever comes first.
type shadowCall struct {
	chain.Start // the object as it was at the hook's turn
	callState
	dispatcher    *Dispatcher
	request       *review.Request   // its reservation is retained until removeShadow
	version       *versionedRequest // the request with the object, in the version of the request
	bytes         int               // that it holds
	slot, room    *memory.Reservation
	cancelContext context.CancelFunc
	awaited       *awaitedShadow // nil if the review does not wait for it
}

// startShadows starts shadow calls that take the same version on one backend. Each has the whole timeout of its hook, since
// the review does not wait. A panic ends the shadow calls and not the review.
func (x *run) startShadows(ctx context.Context, v *versionedRequest, calls []chain.Start) {
	defer x.dispatcher.recoverShadow(ctx, x.request)
	d, bytes := x.dispatcher, len(v.message.GetObject().GetRaw())+len(v.message.GetOldObject().GetRaw())
	bytes = max(bytes, int(x.request.Reservation.Bytes()))
	if calls[0].Hook.Route.Stream {
		x.encode(v) // shared with the calls that decide
	}
	version := *v
	for _, c := range calls {
		s := &shadowCall{Start: c, dispatcher: d, request: x.request, version: &version, bytes: bytes}
		s.callState = callState{begun: time.Now(), span: d.observer.BeginCall(ctx, x.span, x.request, c.Call)}
		s.Deadline, s.Span = s.begun.Add(c.Hook.Timeout), s.span.SpanContext()
		own, cancel := context.WithDeadline(context.WithoutCancel(ctx), s.Deadline)
		s.cancelContext = cancel
		s.awaited = x.await(c.ID)
		if !d.hasSpareReplica(c.Hook, x.request) || !d.shadows.addShadow(s) {
			cancel()
			s.record(ctx, shadow.Dropped, chain.Outcome{Call: s.Call, Reason: "a limit of calls in shadow was reached"})
			s.awaited.end()
			continue
		}
		go s.run(own)
	}
}

func (d *Dispatcher) hasSpareReplica(h *match.Hook, r *review.Request) bool {
	return d.options.Capacity == nil || !h.Route.Stream || d.options.Capacity.Spare(h, review.Shadow, r.Admission.GetCluster())
}

func (s *shadowCall) run(ctx context.Context) {
	defer s.awaited.end()
	defer s.dispatcher.shadows.removeShadow(s)
	defer s.dispatcher.recoverShadow(ctx, s.request)
	results := make(chan callResult, 1)
	s.cancel = func(int) {}
	if s.startCall(ctx, results) {
		return
	}
	r := s.awaitResult(ctx, results)
	s.ended = r.at
	o := chain.EvaluateShadow(s.Hook, r.result)
	if o.Effect == chain.Skipped {
		s.skip(o)
		return
	}
	s.record(ctx, shadowOutcome(o), o)
}

// startCall makes the call if the hook applies, and reports whether it does not. Matching the hook and converting the object
// may look things up in the cluster. After a panic the call ends at its deadline.
func (s *shadowCall) startCall(ctx context.Context, results chan<- callResult) (skipped bool) {
	defer s.dispatcher.recoverShadow(ctx, s.request)
	var reviewContext reviewContext
	version, decision, err := s.convert(ctx, &reviewContext)
	if err != nil || !decision.Match {
		s.skipCall(ctx, decision, err)
		return true
	}
	if s.Hook.Route.Stream && version.body.Len() == 0 {
		version.body = wire.EncodeBody(version.message, trace.SpanContextFromContext(ctx))
	}
	backend := s.dispatcher.backendOf(s.Hook)
	if s.Hook.Policy != nil {
		reviewContext.codec = s.dispatcher.options.Codec(allowance{ctx, s.request.Reservation})
		backend = policies{&reviewContext, version.view}
	}
	s.cancel = backend.Start(ctx, &review.CallSet{
		Request: version.message, Body: version.body, Reservation: s.request.Reservation, Calls: []review.Call{s.Call},
	}, func(_ int, r review.Result) {
		select {
		case results <- callResult{at: time.Now(), result: r}:
		default: // cancelled before
		}
	})
	return false
}

// awaitResult returns the result of the call. It cancels the call at the end of ctx.
func (s *shadowCall) awaitResult(ctx context.Context, results <-chan callResult) callResult {
	select {
	case r := <-results:
		return r
	case <-ctx.Done():
	}
	select {
	case r := <-results: // came in time
		return r
	default:
	}
	ended := callResult{at: time.Now(), result: review.Fail(review.FailureTimeout, "no verdict in time (timeout %s)", s.Hook.Timeout)}
	if errors.Is(ctx.Err(), context.Canceled) {
		ended.result = review.Fail(review.FailureCancelled, "the dispatcher has stopped")
	}
	s.cancel(s.index)
	return ended
}

// convert matches the hook and returns the request in the version that it takes. It has a review context of its own: another goroutine owns the
// context of the review.
func (s *shadowCall) convert(ctx context.Context, reviewContext *reviewContext) (*versionedRequest, match.Decision, error) {
	reviewContext.init(ctx, s.dispatcher, s.request, nil)
	decision := reviewContext.matchHook(s.Hook, s.Object)
	switch {
	case decision.Err != nil:
		return nil, decision, decision.Err
	case !decision.Match || decision.As == nil:
		return s.version, decision, nil
	}
	as, err := reviewContext.View(s.Object, *decision.As)
	if err != nil {
		return nil, decision, err
	}
	return &versionedRequest{view: as, message: message(s.request.Admission, s.Object, as)}, decision, nil
}

// skipCall records a call that is not made, since the hook does not apply or its matching failed. Its span is not ended, so
// that it is not exported.
func (s *shadowCall) skipCall(ctx context.Context, d match.Decision, err error) {
	if err == nil {
		s.skip(chain.Outcome{Reason: d.Skip})
		return
	}
	s.record(ctx, shadow.Failed, chain.Outcome{Call: s.Call, Reason: err.Error()})
}

// skip counts a hook that does not apply.
func (s *shadowCall) skip(o chain.Outcome) {
	s.dispatcher.observer.SkipShadow(s.Hook, o.Reason)
	s.awaited.set(chain.Skipped.String(), o)
}

// record hands the outcome of the hook to the observer and to a review that waits.
func (s *shadowCall) record(ctx context.Context, outcome shadow.Outcome, o chain.Outcome) {
	s.dispatcher.observer.AddShadow(ctx, s.request, outcome, &observe.FinishedHook{Outcome: o, Begun: s.begun, Ended: s.ended, Recorded: s.span})
	s.awaited.set(string(outcome), o)
}

// shadowOutcome classifies the outcome of a shadow call.
func shadowOutcome(o chain.Outcome) shadow.Outcome {
	switch {
	case o.Failure != nil && notStarted(o.Failure):
		return shadow.Dropped
	case o.Failure != nil:
		return shadow.Failed
	case o.Effect == chain.Denied:
		return shadow.Denied
	case o.Effect == chain.Patched:
		return shadow.Patched
	}
	return shadow.Allowed
}

// notStarted reports whether a call was cancelled, or refused for overload before it started.
func notStarted(f *review.Failure) bool {
	return f.Kind == review.FailureCancelled || f.Kind == review.FailureOverload && f.NotStarted
}

// recoverShadow is deferred around shadow calls: a panic there is logged and ends nothing else.
func (d *Dispatcher) recoverShadow(ctx context.Context, r *review.Request) {
	if p := recover(); p != nil {
		d.options.Logger.ErrorContext(ctx, "panic while calling a hook in shadow", "uid", r.Admission.GetUid(), "panic", p, "stack", string(debug.Stack()))
	}
}
