package hostsdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/codes"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// complaintInterval is how often the faults of one hook are logged at most.
const complaintInterval = time.Second

// errGone is why the context of a handler ended when its session did.
var errGone = errors.New("hostsdk: the session is lost")

// errCancelled is why the context of a handler ended when the dispatcher cancelled the call.
var errCancelled = errors.New("hostsdk: the dispatcher cancelled the call")

// hook is the registration for a name and stage.
type hook struct {
	id         hookID
	span       string // its name
	handler    Handler
	speculate  bool
	probe      func(ctx context.Context) error // nil: always ready
	complaints complaints
	attributes hookAttributes

	lastConfiguration atomic.Pointer[string]
}

// configuration returns the name of a configuration as a string. Consecutive calls nearly always have the same name.
func (h *hook) configuration(name []byte) string {
	if last := h.lastConfiguration.Load(); last != nil && *last == string(name) {
		return *last
	}
	next := string(name)
	h.lastConfiguration.Store(&next)
	return next
}

// caller runs handlers, at most as many at a time as it has slots. Safe for concurrent use.
type caller struct {
	slots   chan struct{}
	tracing *tracing
	metrics *metrics
	logger  *slog.Logger

	// Shared by all calls, and never written.
	allow *hostv1.Verdict_Response // with no other field
	exit  *hostv1.Verdict_Error    // until the handler returns
}

func newCaller(o *Options) (*caller, error) {
	metrics, err := newMetrics(o.MeterProvider)
	if err != nil {
		return nil, fmt.Errorf("hostsdk: Options.MeterProvider: %w", err)
	}
	return &caller{
		slots:   make(chan struct{}, o.MaxOutstanding),
		tracing: newTracing(o.TracerProvider),
		metrics: metrics,
		logger:  o.Logger,
		allow:   &hostv1.Verdict_Response{Response: &admissionv1.AdmissionResponse{Allowed: true}},
		exit:    panicked("handler ended its goroutine"),
	}, nil
}

// callInSlot waits for a slot, calls the handler of an invocation and sets its verdict. It does not return when the handler
// ends its goroutine; the verdict is that failure until the handler has returned.
func (c *caller) callInSlot(inv *invocation) {
	v := &inv.verdict
	if !c.acquire(&inv.ctx) {
		v.QueueUs = microseconds(time.Since(inv.received))
		v.Outcome = &hostv1.Verdict_Refused{Refused: &hostv1.Refused{Reason: whyNotStarted(&inv.ctx)}}
		c.metrics.refused(&inv.ctx, inv.hook)
		return
	}
	defer c.release()
	started := time.Now()
	defer func() {
		took := time.Since(started)
		v.HandleUs = microseconds(took)
		c.metrics.handled(&inv.ctx, inv.hook, v, took)
	}()
	v.QueueUs = microseconds(started.Sub(inv.received))
	v.Outcome = c.exit
	c.handle(inv, started)
}

func (c *caller) acquire(ctx context.Context) bool {
	select {
	case c.slots <- struct{}{}:
	default: // Done of a callContext allocates: only a call that waits needs it.
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			return false
		}
	}
	if ctx.Err() != nil { // Both were ready.
		c.release()
		return false
	}
	return true
}

func (c *caller) release() { <-c.slots }

func whyNotStarted(ctx context.Context) string {
	if errors.Is(context.Cause(ctx), errCancelled) {
		return refusedCancelled
	}
	return refusedNoTime
}

// handle sets the outcome of v.
//
//	handler returned            outcome
//	a response                  response, also after the end of ctx
//	a DeniedError               response, likewise
//	NotStarted                  refused, with its reason
//	an error, ctx ended         cancelled
//	an error                    error: its text if it is an Error, else "handler failed"
//	neither, or no verdict      error, with the reason
//	a panic                     error, panicked
//	the request is malformed    error, with the reason; the handler was not called
func (c *caller) handle(inv *invocation, started time.Time) {
	ctx, span := c.tracing.start(inv, started)
	defer endSpan(span, inv, started)
	v := &inv.verdict
	response, err := c.guard(ctx, inv)
	if err == nil && response.plain() {
		v.Outcome = c.allow
		return
	}
	if err == nil {
		answer, wrong := response.message(inv.hook.id.stage)
		if wrong == nil {
			v.Outcome = &hostv1.Verdict_Response{Response: answer}
			c.complainOfParts(ctx, inv, response)
			return
		}
		err = wrong
	}
	var crash *panicError
	if errors.As(err, &crash) {
		c.complain(ctx, inv, err, slog.String("stack", string(crash.stack)))
		span.SetStatus(codes.Error, "panic")
		v.Outcome = panicked("handler panicked")
		return
	}
	var idle *notStartedError
	if errors.As(err, &idle) {
		c.complain(ctx, inv, err)
		span.SetStatus(codes.Error, idle.why.Message)
		v.Outcome = &hostv1.Verdict_Refused{Refused: &hostv1.Refused{Reason: shorten(valid(idle.why.Message), maxErrorBytes)}}
		return
	}
	if ctx.Err() != nil {
		span.SetStatus(codes.Error, context.Cause(ctx).Error())
		v.Outcome = &hostv1.Verdict_Cancelled{Cancelled: &hostv1.Cancelled{}}
		return
	}
	c.complain(ctx, inv, err)
	span.RecordError(err)
	span.SetStatus(codes.Error, publicText(err, handlerFailed))
	v.Outcome = failure(publicText(err, handlerFailed))
}

// encode appends the encoding of a verdict.
func (c *caller) encode(b []byte, v *hostv1.Verdict) []byte {
	if v.GetOutcome() == c.allow {
		return wire.AppendAllow(b, v.GetCallId(), v.GetHookIndex(), v.GetQueueUs(), v.GetHandleUs())
	}
	return encodeVerdict(b, v)
}

// guard calls the handler and turns a panic into an error. It logs runtime.Goexit, as FailNow of a test calls it: that cannot be
// stopped.
func (c *caller) guard(ctx context.Context, inv *invocation) (response *Response, err error) {
	if err := inv.review.request.check(); err != nil {
		return nil, NewError("the dispatcher sent a request that cannot be decoded", err)
	}
	inv.fillRequest()
	returned := false
	defer func() {
		if returned {
			return
		}
		value := recover()
		if value == nil {
			c.complain(ctx, inv, errors.New("the handler ended its goroutine"))
		}
		err = &panicError{value: value, stack: debug.Stack()}
	}()
	response, err = inv.hook.handler(ctx, &inv.request)
	if err != nil {
		response, err = denialOf(err)
	}
	returned = true
	if err == nil && response == nil {
		return nil, NewError("the handler returned neither a response nor an error", nil)
	}
	return response, err
}

// denialOf returns the denial in the error of a handler, else the error. It panics where the methods of the error do, for example of a nil
// pointer in it: the caller contains that.
func denialOf(err error) (*Response, error) {
	var denied *DeniedError
	if errors.As(err, &denied) {
		return denied.denial(), nil
	}
	_ = err.Error()
	return nil, err
}

func (i *invocation) fillRequest() {
	call := i.call()
	r := &i.request
	r.Hook, r.Configuration = i.hook.id.name, i.hook.configuration(call.Configuration)
	r.Stage, r.Round, r.Mode = stageOf(call.Stage), int(call.Round), modeOf(call.Mode)
	r.request, r.invocation = &i.review.request, i
}

type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

func panicked(message string) *hostv1.Verdict_Error {
	return &hostv1.Verdict_Error{Error: &hostv1.HandlerError{Message: message, Panicked: true}}
}

// subject returns the request alone; an empty one if it cannot be decoded.
func (i *invocation) subject() *Request {
	if i.review.request.check() != nil {
		return &Request{}
	}
	return &Request{request: &i.review.request}
}

// complain logs a failure of a hook, at most once in complaintInterval.
func (c *caller) complain(ctx context.Context, inv *invocation, err error, more ...slog.Attr) {
	if attrs := inv.complaint(err); attrs != nil {
		c.logger.LogAttrs(ctx, slog.LevelError, "handler failed", append(attrs, more...)...)
	}
}

// complainOfParts logs as often which parts of a response its client does not get.
func (c *caller) complainOfParts(ctx context.Context, inv *invocation, r *Response) {
	err := r.unsendable()
	if err == nil {
		return
	}
	if attrs := inv.complaint(err); attrs != nil {
		c.logger.LogAttrs(ctx, slog.LevelError, "a part of the verdict cannot be sent", attrs...)
	}
}

// complaint returns the log attributes of a fault of a hook; nil if another fault was logged a moment ago.
func (i *invocation) complaint(err error) []slog.Attr {
	unlogged, ok := i.hook.complaints.allow(time.Now())
	if !ok {
		return nil
	}
	subject := i.subject()
	return []slog.Attr{
		slog.String("hook", i.hook.id.name),
		slog.String("stage", string(stageOf(i.hook.id.stage))),
		slog.String("cluster", subject.Cluster()),
		slog.String("uid", subject.UID()),
		slog.Any("error", err),
		slog.Int("unlogged", unlogged),
	}
}

// complaints bounds how often the faults of a hook are logged. Safe for concurrent use.
type complaints struct {
	mu       sync.Mutex
	last     time.Time
	unlogged int
}

// allow reports whether to log now, and how many faults were not logged since the last one.
func (c *complaints) allow(now time.Time) (unlogged int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.IsZero() && now.Sub(c.last) < complaintInterval {
		c.unlogged++
		return 0, false
	}
	unlogged, c.unlogged, c.last = c.unlogged, 0, now
	return unlogged, true
}

func microseconds(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0), 1<<32-1))
}
