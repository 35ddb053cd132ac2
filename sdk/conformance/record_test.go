package conformance_test

import (
	"context"
	"slices"
	"sync"
)

// record is a list that grows, and that others wait for. The zero value is empty. Safe for concurrent use.
type record[T any] struct {
	mu    sync.Mutex
	items []T
	grown chan struct{} // closed when an item comes; nil while nobody waits
}

func (r *record[T]) add(item T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.items = append(r.items, item)
	if r.grown != nil {
		close(r.grown)
		r.grown = nil
	}
}

// all returns the items so far. It must not be written.
func (r *record[T]) all() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.items)
}

// next returns the items so far, and a channel that is closed when there are more.
func (r *record[T]) next() ([]T, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.grown == nil {
		r.grown = make(chan struct{})
	}
	return slices.Clip(r.items), r.grown
}

// await waits until the items are as wanted. It reports false when they are not in time, or not when nothing more comes.
func (r *record[T]) await(ctx context.Context, over <-chan struct{}, done func(items []T) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, *patience)
	defer cancel()
	for {
		items, grown := r.next()
		if done(items) {
			return true
		}
		select {
		case <-grown:
		case <-over:
			return done(r.all())
		case <-ctx.Done():
			return done(r.all())
		}
	}
}
