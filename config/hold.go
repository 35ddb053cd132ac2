package config

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	budget "github.com/portcullis-mesh/portcullis/dispatcher/memory"
)

// Bounds of the reviews that are held while the configuration is stale.
const (
	// DefaultMaxHeldBytes is 128 MiB: half of what reviews may hold in all unless told otherwise, so that those of clusters
	// that may be judged find room beside those that may not.
	DefaultMaxHeldBytes = 128 << 20
	// MaxWaiters bounds their number, whatever they hold.
	MaxWaiters = 20_000
	// AnswerReserve is how long before its own end a review is held no more, so that the answer that nothing may judge it is
	// in time. Of what has less than ten times as much left it is a tenth.
	AnswerReserve = 100 * time.Millisecond
)

// hold counts the reviews that wait for a fresh configuration. Its methods may be called concurrently.
type hold struct {
	bytes   *budget.Ledger
	reviews atomic.Int64
}

func newHold(bytes int64) (*hold, error) {
	ledger, err := budget.New(budget.Options{Total: bytes})
	if err != nil {
		return nil, fmt.Errorf("config: reviews that are held: %w", err)
	}
	return &hold{bytes: ledger}, nil
}

// enter counts a review, which calls leave once it waits no more; or says why it may not wait.
func (h *hold) enter(cluster string, bytes int64) (leave func(), err error) {
	if h.reviews.Add(1) > MaxWaiters {
		h.reviews.Add(-1)
		return nil, fmt.Errorf("%d wait already", MaxWaiters)
	}
	lease, err := h.bytes.Reserve(cluster, bytes)
	if err != nil {
		h.reviews.Add(-1)
		return nil, err
	}
	return func() {
		lease.Release()
		h.reviews.Add(-1)
	}, nil
}

// early is ctx, which ends early enough for an answer.
func early(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline.Add(-min(AnswerReserve, time.Until(deadline)/10)))
}
