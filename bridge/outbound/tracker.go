package outbound

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// tracker holds open calls or connections, so that close can abort them and wait for their end.
type tracker struct {
	mu      sync.Mutex
	open    map[aborter]struct{}
	closed  bool
	drained chan struct{} // closed when closed is set and nothing is open
}

// aborter is something that ends early. abort may be called from any goroutine, also after the end.
type aborter interface{ abort() }

func newTracker() *tracker {
	return &tracker{open: make(map[aborter]struct{}), drained: make(chan struct{})}
}

// add tracks x until it is removed. It reports false once the tracker is closed.
func (t *tracker) add(x aborter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.open[x] = struct{}{}
	}
	return !t.closed
}

// remove may be called more than once.
func (t *tracker) remove(x aborter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, open := t.open[x]; !open {
		return
	}
	delete(t.open, x)
	if t.closed && len(t.open) == 0 {
		close(t.drained)
	}
}

func (t *tracker) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open)
}

// close aborts all and waits until they were removed, or returns the cause of the end of ctx.
func (t *tracker) close(ctx context.Context) error {
	for _, x := range t.shut() {
		x.abort()
	}
	select {
	case <-t.drained:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// shut lets add fail and returns all that are open.
func (t *tracker) shut() []aborter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed && len(t.open) == 0 {
		close(t.drained)
	}
	t.closed = true
	return slices.Collect(maps.Keys(t.open))
}
