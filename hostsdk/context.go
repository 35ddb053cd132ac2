package hostsdk

import (
	"context"
	"sync"
	"time"
)

// callContext is the context of a handler: it ends at the deadline of the call, when the call is cancelled, and with the
// session. It makes a real context, with a timer, only if something waits for the end, and reads a trace that is not sampled only if
// something asks for a value: most handlers return before.
type callContext struct {
	deadline time.Time   // set once, by init
	unread   *invocation // whose trace is to be read; nil for none, and after that. Set before the handler is called

	mu     sync.Mutex
	over   bool            // the handler has returned
	parent context.Context //nolint:containedctx // this is a context
	made   context.Context //nolint:containedctx // the real one; nil until it is needed
	cancel context.CancelCauseFunc
	stop   context.CancelFunc
}

var _ context.Context = (*callContext)(nil)

func (c *callContext) init(parent context.Context, deadline time.Time) {
	c.parent, c.deadline = parent, deadline
}

// Deadline implements [context.Context].
func (c *callContext) Deadline() (deadline time.Time, ok bool) { return c.deadline, true }

// Done implements [context.Context].
func (c *callContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.realLocked().Done()
}

// Err implements [context.Context].
func (c *callContext) Err() error { return c.current().Err() }

// Value implements [context.Context]. The standard library finds the cause of the end here, and the context to wait for.
func (c *callContext) Value(key any) any {
	c.readTrace()
	return c.current().Value(key)
}

func (c *callContext) readTrace() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch inv := c.unread; {
	case inv == nil:
	case c.made == nil:
		c.parent, c.unread = remote(c.parent, inv), nil
	default:
		c.made, c.unread = remote(c.made, inv), nil
	}
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

// current returns the context that knows whether this one has ended: the parent, until a real one is needed.
func (c *callContext) current() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil && !c.over && time.Now().Before(c.deadline) {
		return c.parent
	}
	return c.realLocked()
}

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

func (c *callContext) handlerReturned() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.made != nil {
		c.endLocked(nil)
	}
}
