package tenancy

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/test/bench/report"
)

const (
	// rise is how many reviews of a flood are sent in a second while it rises.
	rise = 4000
	// refill is how many are sent in a second then: most of them are refused.
	refill = 50
	// look is how often a flood is looked at, and steady how often it has to look the same.
	look, steady = 50 * time.Millisecond, 4
	// patience bounds the time in which a flood rises, or ends.
	patience = 20 * time.Second
)

// rising is a flood of the other cluster, until end. A nil one has no reviews.
type rising struct {
	arena   *arena
	cancel  context.CancelFunc
	reviews sync.WaitGroup
	inside  atomic.Int64
}

// flood sends reviews of the other cluster, and returns once nothing changes any more. It returns nil for quiet.
func (a *arena) flood(ctx context.Context, f report.Flood, reviews int) (*rising, error) {
	to, ok := map[report.Flood]kind{
		report.SlowWebhook: webhooks, report.HangingWebhooks: hanging, report.NoConnection: connected, report.SlowHandlers: streams,
	}[f]
	if !ok {
		return nil, ctx.Err()
	}
	life, cancel := context.WithTimeout(ctx, hookTimeout*time.Second)
	r := &rising{arena: a, cancel: cancel}
	r.send(life, to, rise, cmp.Or(reviews, DefaultReviews))
	err := r.settle(life)
	r.reviews.Go(func() { r.send(life, to, refill, refill*hookTimeout) })
	return r, err
}

// send sends reviews at a rate.
func (r *rising) send(ctx context.Context, to kind, perSecond, reviews int) {
	begun := time.Now()
	for i := range reviews {
		select {
		case <-time.After(time.Until(begun.Add(time.Duration(i) * time.Second / time.Duration(perSecond)))):
		case <-ctx.Done():
			return
		}
		r.inside.Add(1)
		r.reviews.Go(func() {
			defer r.inside.Add(-1)
			_ = r.arena.review(ctx, neighbour, to) // None is answered.
		})
	}
}

// here is how many reviews of the flood are under way or wait.
func (r *rising) here() int64 {
	if r == nil {
		return 0
	}
	return r.inside.Load()
}

// settle waits until nothing changes.
func (r *rising) settle(ctx context.Context) error {
	type state struct {
		inside int64
		calls  float64
	}
	var last state
	for same, end := 0, time.Now().Add(patience); same < steady; {
		if ctx.Err() != nil || time.Now().After(end) {
			return errors.New("tenancy: the flood does not settle")
		}
		<-time.After(look)
		now := state{r.here(), r.arena.calls()}
		if same++; now != last {
			same = 0
		}
		last = now
	}
	return nil
}

// end ends the flood, and waits until nothing of it is left.
func (r *rising) end() {
	if r == nil {
		return
	}
	r.cancel()
	r.reviews.Wait()
	for end := time.Now().Add(patience); r.arena.calls() > 0 && time.Now().Before(end); {
		<-time.After(look)
	}
}
