package hostsdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

const (
	// instrumentation is the scope of the SDK's spans.
	instrumentation = "github.com/portcullis-mesh/portcullis/hostsdk"
	// complaintInterval is how often the failures of one hook are logged at most.
	complaintInterval = time.Second
)

// errGone is why the context of a handler ended when its session did.
var errGone = errors.New("hostsdk: the session is lost")

// errCancelled is why the context of a handler ended when the dispatcher said so.
var errCancelled = errors.New("hostsdk: the dispatcher cancelled the call")

// hook is what was registered under a name and stage.
type hook struct {
	id         hookID
	handler    Handler
	speculate  bool
	probe      func(ctx context.Context) error // nil: always ready
	complaints complaints
}

// caller runs handlers, at most as many at a time as it has slots. Safe for concurrent use.
type caller struct {
	slots  chan struct{}
	tracer trace.Tracer
	logger *slog.Logger
}

// run waits for a slot, calls the handler of an invocation and sets the outcome of v. ctx carries the deadline of the
// call. It does not return when the handler ends its goroutine; v then says so already.
func (c *caller) run(ctx context.Context, h *hook, inv invocation, v *hostv1.Verdict) {
	if !c.acquire(ctx) {
		v.QueueUs = microseconds(time.Since(inv.received))
		v.Outcome = &hostv1.Verdict_Refused{Refused: &hostv1.Refused{Reason: whyNotStarted(ctx)}}
		return
	}
	defer c.release()
	started := time.Now()
	defer func() { v.HandleUs = microseconds(time.Since(started)) }()
	v.QueueUs = microseconds(started.Sub(inv.received))
	v.Outcome = panicked("handler ended its goroutine")
	c.handle(ctx, h, inv, v)
}

func (c *caller) acquire(ctx context.Context) bool {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	if ctx.Err() != nil { // Both were ready: the caller no longer waits.
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
//	a response                  response, also when nobody waits for it any more
//	an error, ctx ended         cancelled
//	an error                    error: its text if it is an Error, else "handler failed"
//	neither, or no verdict      error, with what is wrong
//	a panic                     error, panicked
func (c *caller) handle(ctx context.Context, h *hook, inv invocation, v *hostv1.Verdict) {
	ctx, span := c.span(ctx, inv)
	defer span.End()
	response, err := c.guard(ctx, h, inv)
	if err == nil {
		answer, wrong := response.message(h.id.stage)
		if wrong == nil {
			span.SetAttributes(attribute.Bool("portcullis.allowed", answer.GetAllowed()))
			v.Outcome = &hostv1.Verdict_Response{Response: answer}
			return
		}
		err = wrong
	}
	if crash, ok := errors.AsType[*panicError](err); ok {
		c.complain(ctx, h, inv, err, slog.String("stack", string(crash.stack)))
		span.SetStatus(codes.Error, "panic")
		v.Outcome = panicked("handler panicked")
		return
	}
	if ctx.Err() != nil {
		span.SetStatus(codes.Error, context.Cause(ctx).Error())
		v.Outcome = &hostv1.Verdict_Cancelled{Cancelled: &hostv1.Cancelled{}}
		return
	}
	c.complain(ctx, h, inv, err)
	span.RecordError(err)
	span.SetStatus(codes.Error, publicText(err, handlerFailed))
	v.Outcome = failure(publicText(err, handlerFailed))
}

// guard contains a panic. When the handler ends its goroutine instead (runtime.Goexit, which is what FailNow of a test
// does) it can only say so.
func (c *caller) guard(ctx context.Context, h *hook, inv invocation) (response *Response, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		value := recover()
		if value == nil {
			c.complain(ctx, h, inv, errors.New("the handler ended its goroutine"))
		}
		err = &panicError{value: value, stack: debug.Stack()}
	}()
	response, err = h.handler(ctx, request(inv))
	returned = true
	if err == nil && response == nil {
		return nil, NewError("the handler returned neither a response nor an error", nil)
	}
	return response, err
}

// panicError is a panic of a handler.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

func panicked(message string) *hostv1.Verdict_Error {
	return &hostv1.Verdict_Error{Error: &hostv1.HandlerError{Message: message, Panicked: true}}
}

// request is what the handler gets to see of an invocation.
func request(inv invocation) *Request {
	call := inv.hookCall()
	return &Request{
		Hook:          call.GetName(),
		Configuration: call.GetConfiguration(),
		Stage:         call.GetStage(),
		Round:         int(call.GetRound()),
		Mode:          call.GetMode(),
		Admission:     inv.review.GetRequest(),
	}
}

// span starts the handler's span as a child of the call's span in the dispatcher. What is not recorded costs little.
func (c *caller) span(ctx context.Context, inv invocation) (context.Context, trace.Span) {
	if parent := inv.review.GetTraceparent(); parent != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
			"traceparent": parent,
			"tracestate":  inv.review.GetTracestate(),
		})
	}
	ctx, span := c.tracer.Start(callSpan(ctx, inv), "portcullis.host.handle", trace.WithSpanKind(trace.SpanKindServer))
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("portcullis.hook", inv.id.name),
			attribute.String("portcullis.stage", stageName(inv.id.stage)),
			attribute.String("portcullis.cluster", inv.review.GetRequest().GetCluster()),
			attribute.Int64("portcullis.call", int64(inv.call)),
		)
	}
	return ctx, span
}

// callSpan makes the span of the call, if the dispatcher names one, the parent: the traceparent of a frame is that of the
// whole review, which may hold calls of several hooks.
func callSpan(ctx context.Context, inv invocation) context.Context {
	parent, id := trace.SpanContextFromContext(ctx), inv.hookCall().GetSpanId()
	if !parent.IsValid() || len(id) != len(trace.SpanID{}) {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, parent.WithSpanID(trace.SpanID(id)))
}

// complain logs a failure of a hook, not more often than its operator can read.
func (c *caller) complain(ctx context.Context, h *hook, inv invocation, err error, more ...slog.Attr) {
	unsaid, ok := h.complaints.allow(time.Now())
	if !ok {
		return
	}
	attrs := append([]slog.Attr{
		slog.String("hook", h.id.name),
		slog.String("stage", stageName(h.id.stage)),
		slog.String("cluster", inv.review.GetRequest().GetCluster()),
		slog.String("uid", inv.review.GetRequest().GetUid()),
		slog.Any("error", err),
		slog.Int("unlogged", unsaid),
	}, more...)
	c.logger.LogAttrs(ctx, slog.LevelError, "handler failed", attrs...)
}

// complaints bounds how often something is logged. Safe for concurrent use.
type complaints struct {
	mu     sync.Mutex
	last   time.Time
	unsaid int
}

// allow says whether now is a time to log, and how many times it was not since the last one.
func (c *complaints) allow(now time.Time) (unsaid int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.IsZero() && now.Sub(c.last) < complaintInterval {
		c.unsaid++
		return 0, false
	}
	unsaid, c.unsaid, c.last = c.unsaid, 0, now
	return unsaid, true
}

func microseconds(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0), 1<<32-1))
}
