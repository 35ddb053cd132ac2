// Package inprocess is a backend for tests, whose hooks are Go functions: a review without streams and encoding.
package inprocess

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Handler judges one request. The request is shared and must not be changed. ctx ends with the deadline of the call, or
// when its result is no longer wanted. An error is a failure, for which the failure policy of the hook decides.
type Handler func(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)

// Find returns the handler of a hook; nil means that there is none. It may be called concurrently.
type Find func(h *match.Hook) Handler

// Backend calls handlers. It is safe for concurrent use.
type Backend struct {
	// Logger gets the panics of handlers, of which an answer says no more than that they happened; nil means nowhere. It is
	// set before the first call.
	Logger *slog.Logger

	find    Find
	running sync.WaitGroup
}

var _ review.Backend = (*Backend)(nil)

// New makes a backend of handlers by the name of their hook. The map belongs to it from now on.
func New(handlers map[string]Handler) *Backend {
	return NewFunc(func(h *match.Hook) Handler { return handlers[h.ID.Name] })
}

// NewFunc makes a backend that finds handlers by more than the name of their hook, which is not unique.
func NewFunc(find Find) *Backend { return &Backend{find: find} }

// Wait returns when no handler runs any more.
func (b *Backend) Wait() { b.running.Wait() }

// Start implements [review.Backend]: each call gets a goroutine.
func (b *Backend) Start(ctx context.Context, set *review.CallSet, done func(int, review.Result)) func(int) {
	calls := make([]call, len(set.Calls))
	for i := range set.Calls {
		deadlined, cancel := context.WithDeadline(context.WithoutCancel(ctx), set.Calls[i].Deadline)
		c := &calls[i]
		c.cancel = cancel
		c.finish = func(r review.Result) { c.once.Do(func() { done(i, r) }) }
		b.running.Go(func() {
			defer cancel()
			c.finish(b.handle(deadlined, set.Calls[i].Hook, set.Request))
		})
	}
	return func(i int) {
		calls[i].cancel()
		calls[i].finish(review.Cancelled())
	}
}

// call is one running handler. The first to finish it decides its result.
type call struct {
	cancel context.CancelFunc
	once   sync.Once
	finish func(review.Result)
}

// handle calls one handler; a panic is a failure of its call alone.
func (b *Backend) handle(ctx context.Context, hook *match.Hook, r *admissionv1.AdmissionRequest) (result review.Result) {
	h := b.find(hook)
	if h == nil {
		return review.Fail(review.FailureUnavailable, "no handler for hook %q", hook.ID.Name)
	}
	defer func() {
		if p := recover(); p != nil {
			if b.Logger != nil {
				b.Logger.ErrorContext(ctx, "handler panicked", "hook", hook.ID.Name, "panic", p, "stack", string(debug.Stack()))
			}
			result = review.Fail(review.FailurePanic, "the handler panicked")
		}
	}()
	begun := time.Now()
	v, err := h(ctx, r)
	switch {
	case err != nil:
		result = review.Result{Failure: &review.Failure{Kind: review.FailureHandler, Err: fmt.Errorf("handler: %w", err)}}
	case v == nil:
		result = review.Fail(review.FailureBadAnswer, "the handler returned no verdict")
	default:
		result = review.Result{Verdict: v}
	}
	result.Timing.Host = time.Since(begun)
	return result
}
