package hostsdk

import (
	"context"
	"sync"
	"time"
)

// callContext is the context of a handler: it ends at the deadline of the call, when the call is cancelled, and with the
// session. What a context costs, a timer above all, it costs only if somebody waits for its end: most handlers are done
// before.
type callContext struct {
	// Set once, by begin.
	parent   context.Context //nolint:containedctx // this is a context
	deadline time.Time

	mu     sync.Mutex
	over   bool            // the handler has returned
	made   context.Context //nolint:containedctx // the real one; nil until somebody wants to know
	cancel context.CancelCauseFunc
	stop   context.CancelFunc
}

var _ context.Context = (*callContext)(nil)

// begin sets what the context depends on.
func (c *callContext) begin(parent context.Context, deadline time.Time) {
	c.parent, c.deadline = parent, deadline
}

// Deadline implements [context.Context].
func (c *callContext) Deadline() (deadline time.Time, ok bool) { return c.deadline, true }

// Done implements [context.Context].
func (c *callContext) Done() <-chan struct{} { return c.real().Done() }

// Err implements [context.Context].
func (c *callContext) Err() error { return c.current().Err() }

// Value implements [context.Context]. The standard library finds the cause of the end here, and what to wait for.
func (c *callContext) Value(key any) any { return c.current().Value(key) }

// real is the context that stands behind this one.
func (c *callContext) real() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.realLocked()
}

func (c *callContext) realLocked() context.Context {
	if c.made == nil {
		ctx, cancel := context.WithCancelCause(c.parent)
		c.made, c.stop = context.WithDeadline(ctx, c.deadline)
		c.cancel = cancel
		if c.over {
			c.endLocked(nil)
		}
	}
	return c.made
}

// current is what says whether the context has ended: the parent, as long as nobody waits and nothing has happened.
func (c *callContext) current() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil && !c.over && time.Now().Before(c.deadline) {
		return c.parent
	}
	return c.realLocked()
}

// end ends the context for a reason.
func (c *callContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.realLocked()
	c.endLocked(cause)
}

func (c *callContext) endLocked(cause error) {
	c.cancel(cause)
	c.stop()
}

// finish ends the context because its handler has returned.
func (c *callContext) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.made != nil {
		c.endLocked(nil)
	}
}
