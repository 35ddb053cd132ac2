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

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Limits of the calls of hooks in shadow that are under way at a time in one dispatcher. Past them a call is not made, and
// counted as dropped.
const (
	// MaxShadowCalls is how many there are.
	MaxShadowCalls = 256
	// MaxShadowBytes is how many bytes their reviews hold together, each counted once for each call: what their leases have
	// booked, or what their objects have where nobody keeps books. Reviews that decide need room too.
	MaxShadowBytes = 32 << 20
)

const (
	// maxShadowReason is how many bytes of a denial by a hook in shadow a trace shows.
	maxShadowReason = 1024
)

// Outcomes of calls in shadow beside those of [chain.Effect].
const (
	shadowFailed  = "failed"  // there is no verdict, or the call could not be made
	shadowDropped = "dropped" // there was no room for the call, or the dispatcher ended it
)

// shadows are the calls of hooks in shadow that are under way. A review starts them and forgets them: they may end later
// than it does. All methods may be called concurrently.
type shadows struct {
	mu     sync.Mutex
	calls  map[*shadow]struct{}
	bytes  int // that they hold
	closed bool
	idle   chan struct{} // once closed, closed itself with the last call
}

func newShadows() *shadows {
	return &shadows{calls: make(map[*shadow]struct{}), idle: make(chan struct{})}
}

// enter takes in a call, if there is room.
func (s *shadows) enter(c *shadow) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.calls) >= MaxShadowCalls || s.bytes+c.bytes > MaxShadowBytes || !c.request.Lease.Retain() {
		return false
	}
	s.calls[c] = struct{}{}
	s.bytes += c.bytes
	return true
}

// leave lets go of a call that has ended and was counted.
func (s *shadows) leave(c *shadow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, c)
	s.bytes -= c.bytes
	c.request.Lease.Release()
	c.release()
	if s.closed && len(s.calls) == 0 {
		close(s.idle)
	}
}

// shut lets no more calls in.
func (s *shadows) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && len(s.calls) == 0 {
		close(s.idle)
	}
	s.closed = true
}

// all are the calls at this moment.
func (s *shadows) all() []*shadow {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*shadow, 0, len(s.calls))
	for c := range s.calls {
		all = append(all, c)
	}
	return all
}

// Close ends what outlives reviews: it lets no more calls of hooks in shadow begin, and waits for those under way until
// they or ctx have ended; the rest is given up. It may be called more than once. Reviews are judged as ever.
func (d *Dispatcher) Close(ctx context.Context) {
	d.shadows.shut()
	select {
	case <-d.shadows.idle:
		return
	case <-ctx.Done():
	}
	for _, c := range d.shadows.all() {
		c.release()
		c.end(review.Fail(review.FailureCancelled, "the dispatcher has stopped"), true)
	}
	<-d.shadows.idle
}

// shadow is one call of a hook in shadow. It has a goroutine while it is asked, which may need the cluster, and when it has
// ended: neither a review nor a backend must be kept waiting. [Dispatcher.Close] waits for these. It ends by its result, by its deadline, or
// with the dispatcher, whatever comes first.
type shadow struct {
	flight
	dispatcher *Dispatcher
	request    *review.Request // whose lease it holds until it has ended
	object     chain.Object    // at the hook's place in the order
	view       *view           // the request with it, in the version in which it came
	bytes      int             // that it holds
	release    func()          // ends what it asks the cluster

	mu      sync.Mutex
	landing func()         // counts the call; nil until it was handed over
	timer   *time.Timer    // for the end of its time; nil until it was handed over
	result  *review.Result // the first one
	at      time.Time      // when it came
	ours    bool           // the backend does not know of it
}

// overshadow starts calls in shadow that see the same on one backend. They have all of the hook's own time, since nobody
// waits for them. What goes wrong costs nothing but them.
func (x *run) overshadow(ctx context.Context, v *view, calls []chain.Call, stream bool) {
	defer x.dispatcher.contain(ctx, x.request)
	d, bytes := x.dispatcher, len(v.message.GetObject().GetRaw())+len(v.message.GetOldObject().GetRaw())
	bytes = max(bytes, int(x.request.Lease.Bytes()))
	if stream {
		x.encode(v) // here it is shared with the calls that decide
	}
	seen, of := *v, trace.SpanFromContext(ctx)
	for _, c := range calls {
		s := &shadow{dispatcher: d, request: x.request, object: c.Object, view: &seen, bytes: bytes}
		s.flight = flight{hook: c.Hook, begun: time.Now(), span: d.seeing.beginCall(ctx, of, c)}
		asking, release := context.WithDeadline(context.WithoutCancel(ctx), s.begun.Add(c.Hook.Timeout))
		if s.release = release; d.spare(c.Hook, x.request) && d.shadows.enter(s) {
			go s.ask(asking)
		} else {
			release()
			d.seeing.shadowed(c.Hook, shadowDropped)
		}
	}
}

// spare reports whether a call that need not be made keeps none that decides from a replica.
func (d *Dispatcher) spare(h *match.Hook, r *review.Request) bool {
	return d.capacity == nil || !h.Route.Stream || d.capacity.Spare(h, review.Shadow, r.Admission.GetCluster())
}

// ask makes the call, if the hook applies. Matching it and bringing the object into its version may take a question to the
// cluster.
func (s *shadow) ask(ctx context.Context) {
	asked, cancel := true, func(int) {}
	defer func() {
		if asked { // also when it went wrong: then it ends with its time
			s.fly(ctx, cancel)
		}
	}()
	defer s.dispatcher.contain(ctx, s.request)
	seen, decision, err := s.see(ctx)
	if asked = err == nil && decision.Match; !asked {
		s.unasked(ctx, decision, err)
		return
	}
	backend := s.dispatcher.webhooks
	if s.hook.Route.Stream {
		backend = s.dispatcher.streams
		if seen.body.Len() == 0 {
			seen.body = conversion.EncodeBody(seen.message)
		}
	}
	cancel = backend.Start(ctx, &Batch{
		Request: seen.message, Body: seen.body, Lease: s.request.Lease,
		Calls: []Call{{Hook: s.hook, Mode: review.Shadow, Deadline: s.begun.Add(s.hook.Timeout), Span: s.span.SpanContext()}},
	}, func(_ int, r review.Result) { s.end(r, false) })
}

// see is the request as the hook takes it, if it applies. What it asks the cluster the review may be asking at the same
// time: neither waits for the other.
func (s *shadow) see(ctx context.Context) (*view, match.Decision, error) {
	subject := newSubject(s.request, s.dispatcher.clusters.Cluster(s.request.Admission.GetCluster()))
	decision := subject.match(ctx, s.hook, s.object)
	switch {
	case decision.Err != nil:
		return nil, decision, decision.Err
	case !decision.Match || decision.As == nil:
		return s.view, decision, nil
	}
	as, err := subject.view(ctx, s.object, *decision.As)
	if err != nil {
		return nil, decision, err
	}
	return &view{of: as, message: message(s.request.Admission, s.object, as)}, decision, nil
}

// unasked ends a call that is not made, because the hook does not apply, or because that cannot be known. Its span, which
// began before the review's could end, is not shown.
func (s *shadow) unasked(ctx context.Context, d match.Decision, err error) {
	defer s.dispatcher.shadows.leave(s)
	if err == nil {
		s.dispatcher.seeing.skipped.WithLabelValues(s.hook.ID.Name, typeLabel(s.hook), d.Skip).Inc()
		return
	}
	s.dispatcher.seeing.shadowed(s.hook, shadowFailed)
	s.log(ctx, shadowFailed, err.Error(), "")
}

// fly lets a call that was handed over end, if it has not.
func (s *shadow) fly(ctx context.Context, cancel func(int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = cancel
	s.landing = func() { s.land(ctx) }
	switch left := time.Until(s.begun.Add(s.hook.Timeout)); {
	case s.result != nil:
		go s.landing()
	case left > 0:
		s.timer = time.AfterFunc(left, s.expire)
	default:
		go s.expire()
	}
}

// end takes the result of the call. It never blocks. ours is a result that the backend does not know of.
func (s *shadow) end(r review.Result, ours bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.result != nil {
		return
	}
	s.result, s.ours, s.at = &r, ours, time.Now()
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.landing != nil {
		go s.landing()
	}
}

// expire ends a call whose time is over.
func (s *shadow) expire() {
	s.end(review.Fail(review.FailureTimeout, "no verdict in time (timeout %s)", s.hook.Timeout), true)
}

// land counts the call, which has a result.
func (s *shadow) land(ctx context.Context) {
	defer s.dispatcher.shadows.leave(s)
	defer s.dispatcher.contain(ctx, s.request)
	if s.ended = s.at; s.ours {
		s.cancel(s.index)
	}
	s.report(ctx, chain.Foresee(s.hook, *s.result))
}

// report tells operators what the hook would have done. The log, which has no line for each review, says it when it is
// asked for everything.
func (s *shadow) report(ctx context.Context, o chain.Outcome) {
	seeing, outcome := s.dispatcher.seeing, o.Effect.String()
	switch {
	case o.Failure != nil && unmade(o.Failure):
		outcome = shadowDropped
	case o.Failure != nil:
		outcome = shadowFailed
		seeing.failures.WithLabelValues(s.hook.ID.Name, typeLabel(s.hook), o.Failure.Kind.String()).Inc()
	case o.Effect == chain.Denied:
		s.span.SetAttributes(attribute.String("portcullis.denial", cut(o.Reason, maxShadowReason)))
	}
	seeing.shadowed(s.hook, outcome)
	if outcome != shadowDropped {
		_, operation := operationLabel(s.request.Admission.GetOperation())
		observe(seeing.durations.WithLabelValues(s.hook.ID.Name, typeLabel(s.hook), operation, "false"), s.took(), s.span.SpanContext())
	}
	s.span.SetAttributes(attribute.Bool("portcullis.shadow", true))
	seeing.endCall(&s.flight, o)
	s.log(ctx, outcome, o.Reason, o.Timing.Instance)
}

// unmade reports whether a call was given up, or found no room.
func unmade(f *review.Failure) bool {
	return f.Kind == review.FailureCancelled || f.Kind == review.FailureOverload && f.NotStarted
}

// log writes a line, where everything is logged.
func (s *shadow) log(ctx context.Context, outcome, reason, instance string) {
	s.dispatcher.log.LogAttrs(ctx, slog.LevelDebug, "hook in shadow",
		slog.String("uid", s.request.Admission.GetUid()),
		slog.String("cluster", s.request.Admission.GetCluster()),
		slog.String("configuration", s.hook.ID.Configuration),
		slog.String("hook", s.hook.ID.Name),
		slog.String("outcome", outcome),
		slog.String("reason", reason),
		slog.String("instance", instance))
}

// cut is a text of at most n bytes, and still UTF-8.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

// contain keeps a panic from anything but the calls that nobody waits for.
func (d *Dispatcher) contain(ctx context.Context, r *review.Request) {
	if p := recover(); p != nil {
		d.log.ErrorContext(ctx, "panic while calling a hook in shadow", "uid", r.Admission.GetUid(), "panic", p, "stack", string(debug.Stack()))
	}
}
