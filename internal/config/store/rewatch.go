package store

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/clock"
)

// How a source is watched again whose watch has ended. Its listings go on meanwhile: a change is seen by the next one.
const (
	// MinRewatch is about the pause before it is watched again.
	MinRewatch = 500 * time.Millisecond
	// MaxRewatch is about the longest pause: each is twice as long as the one before while watches end sooner than this.
	MaxRewatch = 5 * time.Second
)

// watch watches a source until ctx ends.
func (s *Store) watch(ctx context.Context, index int, notify func()) {
	pause := time.Duration(0)
	for {
		begun := time.Now()
		err := s.opts.Sources[index].Watch(ctx, func() {
			s.problems.watched(index, nil)
			notify()
		})
		if ctx.Err() != nil {
			return
		}
		s.problems.watched(index, err)
		pause = rewatchAfter(pause, time.Since(begun))
		clock.Sleep(ctx, pause-rand.N(pause/4)) // not all dispatchers at the same moment
	}
}

// rewatchAfter is the pause behind a watch that has lasted so long, and the pause before it.
func rewatchAfter(before, lasted time.Duration) time.Duration {
	if lasted >= MaxRewatch {
		return MinRewatch
	}
	return min(max(2*before, MinRewatch), MaxRewatch)
}
