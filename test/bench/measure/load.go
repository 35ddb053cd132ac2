package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// maxInFlight bounds the reviews of an open load that run at a time, and those that wait for it. Past that the rate is
	// too high.
	maxInFlight = 256
	// firstLatencies is how many latencies a caller has room for before its memory grows.
	firstLatencies = 1 << 13
)

// errOverrun ends an open load whose reviews take longer than they come.
var errOverrun = errors.New("measure: reviews come faster than they are judged")

// closed is a load of callers who send the next review when the last is answered.
type closed struct {
	ctx       context.Context // of the one run
	review    Review
	how       Load
	latencies [][]time.Duration // of each caller
}

func newClosed(ctx context.Context, review Review, how Load) *closed {
	c := &closed{ctx: ctx, review: review, how: how, latencies: make([][]time.Duration, how.Callers)}
	for i := range c.latencies {
		c.latencies[i] = make([]time.Duration, 0, firstLatencies)
	}
	return c
}

func (c *closed) run() ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	end := time.Now().Add(c.how.Duration)
	var callers sync.WaitGroup
	for i := range c.latencies {
		callers.Go(func() {
			mine := c.latencies[i]
			for begun := time.Now(); begun.Before(end) || len(mine) < c.how.Least; {
				if err := c.review(ctx); err != nil {
					cancel(fmt.Errorf("a review failed: %w", err))
					return
				}
				now := time.Now()
				mine = append(mine, now.Sub(begun))
				begun = now
			}
			c.latencies[i] = mine
		})
	}
	callers.Wait()
	return slices.Concat(c.latencies...), context.Cause(ctx)
}

// open is a load that comes at a rate.
type open struct {
	ctx       context.Context // of the one run
	cancel    context.CancelCauseFunc
	review    Review
	how       Load
	sent      chan sending
	latencies []time.Duration
	workers   sync.WaitGroup
}

// sending is a review of an open load on its way.
type sending struct {
	number int
	at     time.Time
}

// newOpen starts the workers, which end with run.
func newOpen(ctx context.Context, review Review, how Load) *open {
	ctx, cancel := context.WithCancelCause(ctx)
	o := &open{
		ctx: ctx, cancel: cancel, review: review, how: how, sent: make(chan sending, maxInFlight),
		latencies: make([]time.Duration, max(how.Least, int(how.Rate*how.Duration.Seconds()))),
	}
	for range maxInFlight {
		o.workers.Go(o.work)
	}
	return o
}

// work judges the sent reviews. A latency counts from the moment when the review was sent out, not from when a worker
// took it up.
func (o *open) work() {
	for s := range o.sent {
		if err := o.review(o.ctx); err != nil {
			o.cancel(fmt.Errorf("a review failed: %w", err))
			continue // the sender stops
		}
		o.latencies[s.number] = time.Since(s.at)
	}
}

func (o *open) run() ([]time.Duration, error) {
	defer o.cancel(nil)
	if err := o.send(); err != nil {
		o.cancel(err)
	}
	close(o.sent)
	o.workers.Wait()
	return o.latencies, context.Cause(o.ctx)
}

// send sends the reviews out at their times. A late review goes at once, so that the rate holds.
func (o *open) send() error {
	alarm, err := newAlarm()
	if err != nil {
		return err
	}
	defer alarm.close()
	begun := time.Now()
	for i := range o.latencies {
		due := begun.Add(time.Duration(float64(i) / o.how.Rate * float64(time.Second)))
		if err := alarm.wait(o.ctx, due); err != nil {
			return err // of a review that failed, run knows the cause
		}
		select {
		case o.sent <- sending{i, time.Now()}:
		default:
			return errOverrun
		}
	}
	return nil
}
