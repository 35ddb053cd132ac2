// Package reconcile repeats work of the mesh in a cluster: to keep entries, to follow the configurations of others, and to write the statuses
// of custom resources. Each dispatcher has a [Loop] for each, and the dispatcher that holds its Lease writes ([Candidate]). [Clusters] runs the
// loops of many clusters apart from each other.
package reconcile

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// A cluster chooses how often it wakes a loop. The first wakeBurst calls for that begin at once, and then one in each wakeInterval.
const (
	wakeBurst    = 2
	wakeInterval = time.Second
)

// Loop repeats one piece of work. Configuration and Wake may be nil.
type Loop struct {
	// Lease is given back at the end. Reconcile campaigns for it.
	Lease *Candidate
	// Configuration returns a comparable name for the configuration in force, and a channel that is closed when there may be another one.
	Configuration func() (name any, next <-chan struct{})
	// Wake has a token when there is a reason to reconcile. Tokens that follow each other fast share one call.
	Wake <-chan struct{}
	// Reconcile does the work once, and returns the time until it is called again at the latest.
	Reconcile func(ctx context.Context) (time.Duration, error)
	// Failed logs an error of Reconcile. It is called once until the error is another one.
	Failed func(error)

	wakes *rate.Limiter
}

// Run reconciles until ctx ends: at once, then when the configuration is another one, when the Lease was gained or lost, when Wake has a
// token, and when the time of the last call is over.
func (l *Loop) Run(ctx context.Context) {
	defer l.Lease.End()
	l.wakes = rate.NewLimiter(rate.Every(wakeInterval), wakeBurst)
	if l.Configuration == nil {
		l.Configuration = func() (any, <-chan struct{}) { return nil, nil }
	}
	for failure := ""; ctx.Err() == nil; {
		name, next := l.Configuration()
		wait, err := l.Reconcile(ctx)
		if ctx.Err() != nil {
			return
		}
		last := failure
		if failure = ""; err != nil {
			failure = err.Error()
		}
		if failure != "" && failure != last {
			l.Failed(err)
		}
		l.await(ctx, name, next, wait)
	}
}

func (l *Loop) await(ctx context.Context, name any, next <-chan struct{}, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	wake, rested := l.Wake, (<-chan time.Time)(nil)
	for now := name; now == name; now, next = l.Configuration() {
		select {
		case <-next:
		case <-l.Lease.Changed():
			return
		case <-wake:
			wake, rested = nil, time.After(l.wakes.Reserve().Delay())
		case <-rested:
			return
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
