package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	budget "github.com/portcullis-mesh/portcullis/dispatcher/memory"
)

// Bounds of the reviews that wait while the configuration is stale.
const (
	// DefaultMaxWaitBytes is 128 MiB: half of the default for all reviews, so that reviews of clusters with a fresh
	// configuration find room beside waiting ones.
	DefaultMaxWaitBytes = 128 << 20
	// MaxWaiters bounds their number, whatever they hold. Of one cluster no more wait than it leaves free for the others: half,
	// if it is alone.
	MaxWaiters = 20_000
	// AnswerReserve is how long before its own end a review stops waiting, so that the refusal arrives in time. For a review
	// with less than ten times as much left the reserve is a tenth.
	AnswerReserve = 100 * time.Millisecond
)

// waitQueue bounds the reviews that wait for a fresh configuration, and their bytes, with a share for each cluster. It has no
// order: all waiters begin when the configuration is fresh. Its methods may be called concurrently.
type waitQueue struct {
	reviews *budget.Ledger // one unit for each review
	bytes   *budget.Ledger
}

func newWaitQueue(maxBytes int64) (*waitQueue, error) {
	reviews, err := budget.New(budget.Options{Total: MaxWaiters})
	if err != nil {
		return nil, fmt.Errorf("config: waiting reviews: %w", err)
	}
	bytes, err := budget.New(budget.Options{Total: maxBytes})
	if err != nil {
		return nil, fmt.Errorf("config: bytes of waiting reviews: %w", err)
	}
	return &waitQueue{reviews: reviews, bytes: bytes}, nil
}

// enter counts a review until leave is called, or says why it may not wait.
func (q *waitQueue) enter(cluster string, bytes int64) (leave func(), err error) {
	waiter, err := q.reviews.Reserve(cluster, 1)
	if err != nil {
		return nil, fmt.Errorf("%d reviews wait already, of which one cluster may have as many as it leaves free", q.reviews.InUse())
	}
	booked, err := q.bytes.Reserve(cluster, bytes)
	if err != nil {
		waiter.Release()
		return nil, err
	}
	return func() {
		booked.Release()
		waiter.Release()
	}, nil
}

// withReserve is ctx with an earlier deadline, which leaves time for an answer.
func withReserve(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline.Add(-min(AnswerReserve, time.Until(deadline)/10)))
}

// await is Acquire for a review that finds the configuration stale.
func (s *Store) await(ctx context.Context, cluster string, bytes int64) (snapshot *match.Snapshot, stale string, err error) {
	leave, err := s.waiting.enter(cluster, bytes)
	if err != nil {
		s.counts.full.Add(1)
		return nil, "", fmt.Errorf("%w, and no more reviews may wait for it: %w", ErrStale, err)
	}
	defer leave()
	waiting, cancel := withReserve(ctx)
	defer cancel()
	for {
		allowed, g := s.allowed.Load(), s.current.Load()
		said, ok := s.mayJudge(g, cluster)
		switch {
		case !ok:
			s.problems.waits(g, s.staleError)
		case s.begin(g, said):
			return g.snapshot, said, nil
		}
		select {
		case <-g.next:
		case <-allowed.next:
		case <-s.ended:
			return nil, "", s.stopped()
		case <-waiting.Done():
			select {
			case <-s.ended: // a store that ends with an error ends the waits for it too
				return nil, "", s.stopped()
			default:
			}
			s.counts.over(ctx)
			return nil, "", errors.Join(s.staleError(g), context.Cause(waiting))
		}
	}
}

// stopped is the error of a review that waits when the store ends.
func (s *Store) stopped() error {
	s.counts.stopped.Add(1)
	return fmt.Errorf("%w: %w", ErrStale, ErrStopped)
}
