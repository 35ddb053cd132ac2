package dispatcher

import (
	"context"
	"sync"
	"time"
)

// bounded is a context with an earlier deadline, which costs nothing until somebody waits for it: most reviews ask the
// cluster nothing. It may be used from any number of goroutines; release has to be called in the end.
type bounded struct {
	context.Context //nolint:containedctx // it is a context, as those of package context hold theirs

	deadline time.Time

	mu     sync.Mutex
	made   context.Context //nolint:containedctx // itself, once somebody waits
	cancel context.CancelFunc
}

// newBounded is parent with a deadline, which is not later than that of parent.
func newBounded(parent context.Context, deadline time.Time) *bounded {
	return &bounded{Context: parent, deadline: deadline}
}

// Deadline implements [context.Context].
func (b *bounded) Deadline() (time.Time, bool) { return b.deadline, true }

// Done implements [context.Context]. The first call starts a timer.
func (b *bounded) Done() <-chan struct{} { return b.waited().Done() }

// Err implements [context.Context].
func (b *bounded) Err() error {
	if made := b.known(); made != nil {
		return made.Err()
	}
	if err := b.Context.Err(); err != nil {
		return err
	}
	if !time.Now().Before(b.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements [context.Context].
func (b *bounded) Value(key any) any {
	if made := b.known(); made != nil {
		return made.Value(key) // so that contexts made of this one find the timer that it has
	}
	return b.Context.Value(key)
}

// known is the context that was made; nil when nobody has waited yet.
func (b *bounded) known() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.made
}

// waited is the context with the timer.
func (b *bounded) waited() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made == nil {
		b.made, b.cancel = context.WithDeadline(b.Context, b.deadline)
	}
	return b.made
}

// release ends the context for those who wait, and frees the timer.
func (b *bounded) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel != nil {
		b.cancel()
	}
}
