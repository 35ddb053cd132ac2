package store

import (
	"context"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// listed is the result of one listing.
type listed struct {
	index   int // of the source
	listing config.Listing
	err     error
}

// poller lists one source: every ListInterval, when the source wants to be, and soon after the source noticed a change.
type poller struct {
	source config.Source
	index  int
	limit  time.Duration // of one listing: an older one is of no use
	kick   chan struct{} // holds one token while a change waits
}

func newPoller(source config.Source, index int, limit time.Duration) *poller {
	return &poller{source: source, index: index, limit: limit, kick: make(chan struct{}, 1)}
}

// notify announces a possible change. It never blocks.
func (p *poller) notify() {
	select {
	case p.kick <- struct{}{}:
	default: // one change is waiting already, and the next listing will show both
	}
}

// poll sends listings until ctx ends. While one is not taken, no other begins.
func (p *poller) poll(ctx context.Context, results chan<- listed) {
	for {
		begun := time.Now()
		result := p.list(ctx)
		result.listing.Started = begun
		select {
		case results <- result:
		case <-ctx.Done():
			return
		}
		p.pause(ctx, config.Sooner(result.listing.Again, max(1, time.Until(begun.Add(ListInterval)))))
	}
}

func (p *poller) list(ctx context.Context) listed {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	listing, err := p.source.List(ctx)
	return listed{p.index, listing, err}
}

// pause waits for the next listing to be due.
func (p *poller) pause(ctx context.Context, rest time.Duration) {
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C:
		return
	case <-ctx.Done():
		return
	case <-p.kick:
	}
	clock.Sleep(ctx, min(rest, WatchDelay))
	select { // the listing that follows sees the changes of the meantime
	case <-p.kick:
	default:
	}
}
