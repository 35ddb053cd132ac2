package dispatcher

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// Limits of shadow calls in flight in one dispatcher. A call beyond them is not made, and counted as dropped.
const (
	// MaxShadowCalls is the number of calls.
	MaxShadowCalls = 256
	// MaxShadowBytes is the memory of their reviews, each counted once for each call: the size of its reservation, or the
	// size of its objects if that is larger. The bound leaves memory to reviews that decide.
	MaxShadowBytes = 32 << 20
)

const (
	// maxShadowReason is the most bytes of a shadow hook's denial that a span shows.
	maxShadowReason = 1024
)

// Outcomes of shadow calls besides those of [chain.Effect].
const (
	shadowFailed  = "failed"  // no verdict, or the call could not be made
	shadowDropped = "dropped" // past a limit, or ended by Close
)

// shadows holds the shadow calls in flight. They may end later than the review that started them. All methods may be called
// concurrently.
type shadows struct {
	mu     sync.Mutex
	calls  map[*shadowCall]struct{}
	bytes  int // sum of shadowCall.bytes
	closed bool
	idle   chan struct{} // closed when closed is set and calls is empty
}

func newShadows() *shadows {
	return &shadows{calls: make(map[*shadowCall]struct{}), idle: make(chan struct{})}
}

// addShadow adds a call and retains the reservation of its review; false if a limit is reached or after refuseMore.
func (s *shadows) addShadow(c *shadowCall) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.calls) >= MaxShadowCalls || s.bytes+c.bytes > MaxShadowBytes || !c.request.Reservation.Retain() {
		return false
	}
	s.calls[c] = struct{}{}
	s.bytes += c.bytes
	return true
}

// removeShadow removes a call that has ended and was counted.
func (s *shadows) removeShadow(c *shadowCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, c)
	s.bytes -= c.bytes
	c.request.Reservation.Release()
	c.cancelLookups()
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

// outstanding returns the calls in flight.
func (s *shadows) outstanding() []*shadowCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*shadowCall, 0, len(s.calls))
	for c := range s.calls {
		all = append(all, c)
	}
	return all
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
	for _, c := range d.shadows.outstanding() {
		c.cancelLookups()
		c.setResult(review.Fail(review.FailureCancelled, "the dispatcher has stopped"), true)
	}
	<-d.shadows.idle
}

// shadowCall is one call of a hook in shadow. One goroutine starts it, since matching may look things up in the cluster, and
// another counts it at its end, so that neither the review nor the backend waits; [Dispatcher.Close] waits for both. It ends
// with its result, at its deadline, or by Close, whichever comes first.
type shadowCall struct {
	callState
	dispatcher    *Dispatcher
	request       *review.Request   // its reservation is retained until removeShadow
	object        chain.Object      // as it was at the hook's turn
	view          *versionedRequest // the request with object, in the version of the request
	bytes         int               // that it holds
	cancelLookups func()            // ends look-ups in the cluster

	mu            sync.Mutex
	complete      func()         // counts the call; nil until awaitResult
	timer         *time.Timer    // for the deadline; nil until awaitResult
	result        *review.Result // the first one
	resultAt      time.Time      // when result was set
	cancelBackend bool           // result does not come from the backend: its call is still running
}

// startShadows starts shadow calls that take the same version on one backend. Each has the whole timeout of its hook, since
// the review does not wait. A panic ends the shadow calls and not the review.
func (x *run) startShadows(ctx context.Context, v *versionedRequest, calls []chain.Call, stream bool) {
	defer x.dispatcher.recoverShadow(ctx, x.request)
	d, bytes := x.dispatcher, len(v.message.GetObject().GetRaw())+len(v.message.GetOldObject().GetRaw())
	bytes = max(bytes, int(x.request.Reservation.Bytes()))
	if stream {
		x.encode(v) // shared with the calls that decide
	}
	versioned, of := *v, trace.SpanFromContext(ctx)
	for _, c := range calls {
		s := &shadowCall{dispatcher: d, request: x.request, object: c.Object, view: &versioned, bytes: bytes}
		s.callState = callState{hook: c.Hook, begun: time.Now(), span: d.metrics.beginCall(ctx, of, c)}
		lookups, release := context.WithDeadline(context.WithoutCancel(ctx), s.begun.Add(c.Hook.Timeout))
		if s.cancelLookups = release; d.hasSpareReplica(c.Hook, x.request) && d.shadows.addShadow(s) {
			go s.startCall(lookups)
		} else {
			release()
			d.metrics.countShadow(c.Hook, shadowDropped)
		}
	}
}

// hasSpareReplica reports whether a replica has room for a shadow call beyond the calls that decide.
func (d *Dispatcher) hasSpareReplica(h *match.Hook, r *review.Request) bool {
	return d.capacity == nil || !h.Route.Stream || d.capacity.Spare(h, review.Shadow, r.Admission.GetCluster())
}

// startCall makes the call if the hook applies. Matching the hook and converting the object may look things up in the cluster.
func (s *shadowCall) startCall(ctx context.Context) {
	asked, cancel := true, func(int) {}
	defer func() {
		if asked { // also after a panic: the call then ends at its deadline
			s.awaitResult(ctx, cancel)
		}
	}()
	defer s.dispatcher.recoverShadow(ctx, s.request)
	versioned, decision, err := s.convert(ctx)
	if asked = err == nil && decision.Match; !asked {
		s.skipCall(ctx, decision, err)
		return
	}
	backend := s.dispatcher.webhooks
	if s.hook.Route.Stream {
		backend = s.dispatcher.streams
		if versioned.body.Len() == 0 {
			versioned.body = wire.EncodeBody(versioned.message)
		}
	}
	cancel = backend.Start(ctx, &Batch{
		Request: versioned.message, Body: versioned.body, Reservation: s.request.Reservation,
		Calls: []Call{{Hook: s.hook, Mode: review.Shadow, Deadline: s.begun.Add(s.hook.Timeout), Span: s.span.SpanContext()}},
	}, func(_ int, r review.Result) { s.setResult(r, false) })
}

// convert matches the hook and returns the request in the version that it takes. It has a review context of its own, since
// that of the review belongs to another goroutine.
func (s *shadowCall) convert(ctx context.Context) (*versionedRequest, match.Decision, error) {
	reviewContext := newReviewContext(s.request, s.dispatcher.clusters.Cluster(s.request.Admission.GetCluster()))
	decision := reviewContext.matchHook(ctx, s.hook, s.object)
	switch {
	case decision.Err != nil:
		return nil, decision, decision.Err
	case !decision.Match || decision.As == nil:
		return s.view, decision, nil
	}
	as, err := reviewContext.viewAs(ctx, s.object, *decision.As)
	if err != nil {
		return nil, decision, err
	}
	return &versionedRequest{view: as, message: message(s.request.Admission, s.object, as)}, decision, nil
}

// skipCall ends a call that is not made, since the hook does not apply or its matching failed. Its span is not ended, so that
// it is not exported.
func (s *shadowCall) skipCall(ctx context.Context, d match.Decision, err error) {
	defer s.dispatcher.shadows.removeShadow(s)
	if err == nil {
		s.dispatcher.metrics.skipped.WithLabelValues(s.hook.ID.Name, typeLabel(s.hook), d.Skip).Inc()
		return
	}
	s.dispatcher.metrics.countShadow(s.hook, shadowFailed)
	s.log(ctx, shadowFailed, err.Error(), "")
}

// awaitResult completes a started call when it has a result, or at its deadline.
func (s *shadowCall) awaitResult(ctx context.Context, cancel func(int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = cancel
	s.complete = func() { s.completeCall(ctx) }
	switch left := time.Until(s.begun.Add(s.hook.Timeout)); {
	case s.result != nil:
		go s.complete()
	case left > 0:
		s.timer = time.AfterFunc(left, s.timeOut)
	default:
		go s.timeOut()
	}
}

// setResult sets the result of the call, unless it has one. It never blocks. cancelBackend is set when the result does not
// come from the backend.
func (s *shadowCall) setResult(r review.Result, cancelBackend bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.result != nil {
		return
	}
	s.result, s.cancelBackend, s.resultAt = &r, cancelBackend, time.Now()
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.complete != nil {
		go s.complete()
	}
}

// timeOut ends the call at its deadline.
func (s *shadowCall) timeOut() {
	s.setResult(review.Fail(review.FailureTimeout, "no verdict in time (timeout %s)", s.hook.Timeout), true)
}

// completeCall reports the call, which has a result, and removes it.
func (s *shadowCall) completeCall(ctx context.Context) {
	defer s.dispatcher.shadows.removeShadow(s)
	defer s.dispatcher.recoverShadow(ctx, s.request)
	if s.ended = s.resultAt; s.cancelBackend {
		s.cancel(s.index)
	}
	s.report(ctx, chain.EvaluateShadow(s.hook, *s.result))
}

// report records what the hook would have done in metrics, span and debug log.
func (s *shadowCall) report(ctx context.Context, o chain.Outcome) {
	metrics, outcome := s.dispatcher.metrics, o.Effect.String()
	switch {
	case o.Failure != nil && notStarted(o.Failure):
		outcome = shadowDropped
	case o.Failure != nil:
		outcome = shadowFailed
		metrics.failures.WithLabelValues(s.hook.ID.Name, typeLabel(s.hook), o.Failure.Kind.String()).Inc()
	case o.Effect == chain.Denied:
		s.span.SetAttributes(attribute.String("portcullis.denial", cut(o.Reason, maxShadowReason)))
	}
	metrics.countShadow(s.hook, outcome)
	if outcome != shadowDropped {
		_, operation := operationLabel(s.request.Admission.GetOperation())
		observe(metrics.durations.WithLabelValues(s.hook.ID.Name, typeLabel(s.hook), operation, "false"), s.duration(), s.span.SpanContext())
	}
	s.span.SetAttributes(attribute.Bool("portcullis.shadow", true))
	metrics.endCall(&s.callState, o)
	s.log(ctx, outcome, o.Reason, o.Timing.Instance)
}

// notStarted reports whether a call was cancelled, or refused for overload before it started.
func notStarted(f *review.Failure) bool {
	return f.Kind == review.FailureCancelled || f.Kind == review.FailureOverload && f.NotStarted
}

// log writes a line at level debug.
func (s *shadowCall) log(ctx context.Context, outcome, reason, instance string) {
	s.dispatcher.log.LogAttrs(ctx, slog.LevelDebug, "hook in shadow",
		slog.String("uid", s.request.Admission.GetUid()),
		slog.String("cluster", s.request.Admission.GetCluster()),
		slog.String("configuration", s.hook.ID.Configuration),
		slog.String("hook", s.hook.ID.Name),
		slog.String("outcome", outcome),
		slog.String("reason", reason),
		slog.String("instance", instance))
}

// cut returns the first n bytes of a text, as valid UTF-8.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

// recoverShadow is deferred around shadow calls: a panic there is logged and ends nothing else.
func (d *Dispatcher) recoverShadow(ctx context.Context, r *review.Request) {
	if p := recover(); p != nil {
		d.log.ErrorContext(ctx, "panic while calling a hook in shadow", "uid", r.Admission.GetUid(), "panic", p, "stack", string(debug.Stack()))
	}
}
