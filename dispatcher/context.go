package dispatcher

import (
	"context"
	"sync"
	"time"
)

// bounded is a context with an earlier deadline that starts its timer at the first call of Done: most reviews look nothing
// up in the cluster and need none. It may be used from any number of goroutines; release has to be called at the end.
type bounded struct {
	context.Context //nolint:containedctx // the parent

	deadline time.Time // not later than the parent's

	mu     sync.Mutex
	made   context.Context //nolint:containedctx // with the timer; nil until Done
	cancel context.CancelFunc
}

// Deadline implements [context.Context].
func (b *bounded) Deadline() (time.Time, bool) { return b.deadline, true }

// Done implements [context.Context]. The first call starts a timer.
func (b *bounded) Done() <-chan struct{} { return b.withTimer().Done() }

// Err implements [context.Context].
func (b *bounded) Err() error {
	if made := b.loadMade(); made != nil {
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
	if made := b.loadMade(); made != nil {
		return made.Value(key) // so that contexts derived from this one find its timer
	}
	return b.Context.Value(key)
}

func (b *bounded) loadMade() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.made
}

// withTimer returns the context with the timer, and makes it if needed.
func (b *bounded) withTimer() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made == nil {
		b.made, b.cancel = context.WithDeadline(b.Context, b.deadline)
	}
	return b.made
}

// release ends the context and frees the timer.
func (b *bounded) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel != nil {
		b.cancel()
	}
}
