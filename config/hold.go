package config

import (
	"context"
	"fmt"
	"time"

	budget "github.com/portcullis-mesh/portcullis/dispatcher/memory"
)

// Bounds of the reviews that are held while the configuration is stale.
const (
	// DefaultMaxHeldBytes is 128 MiB: half of what reviews may hold in all unless told otherwise, so that those of clusters
	// that may be judged find room beside those that may not.
	DefaultMaxHeldBytes = 128 << 20
	// MaxWaiters bounds their number, whatever they hold. Of one cluster no more wait than it leaves free for the others: half,
	// if it is alone.
	MaxWaiters = 20_000
	// AnswerReserve is how long before its own end a review is held no more, so that the answer that nothing may judge it is
	// in time. Of what has less than ten times as much left it is a tenth.
	AnswerReserve = 100 * time.Millisecond
)

// hold counts the reviews that wait for a fresh configuration, and their bytes. Its methods may be called concurrently.
type hold struct {
	reviews *budget.Ledger // one unit each
	bytes   *budget.Ledger
}

func newHold(bytes int64) (*hold, error) {
	reviews, err := budget.New(budget.Options{Total: MaxWaiters})
	if err != nil {
		return nil, fmt.Errorf("config: reviews that are held: %w", err)
	}
	ledger, err := budget.New(budget.Options{Total: bytes})
	if err != nil {
		return nil, fmt.Errorf("config: bytes of reviews that are held: %w", err)
	}
	return &hold{reviews: reviews, bytes: ledger}, nil
}

// enter counts a review, which calls leave once it waits no more; or says why it may not wait.
func (h *hold) enter(cluster string, bytes int64) (leave func(), err error) {
	place, err := h.reviews.Reserve(cluster, 1)
	if err != nil {
		return nil, fmt.Errorf("%d reviews wait already, of which one cluster may have as many as it leaves free", h.reviews.InUse())
	}
	lease, err := h.bytes.Reserve(cluster, bytes)
	if err != nil {
		place.Release()
		return nil, err
	}
	return func() {
		lease.Release()
		place.Release()
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
