package identity

import (
	"context"
	"sync"
	"time"
)

// CheckInterval is the interval at which [While] checks a channel.
const CheckInterval = time.Second

// While returns a context for something that lasts: it ends when the channel has no identity any more, with the reason as its cause.
// stop has to be called; it returns after the last check.
func While(ctx context.Context, c Channel) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var asking sync.WaitGroup
	asking.Go(func() {
		t := time.NewTicker(CheckInterval)
		defer t.Stop()
		for ctx.Err() == nil {
			select {
			case <-t.C:
				if _, err := c.Identity(); err != nil {
					cancel(err)
				}
			case <-ctx.Done():
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		asking.Wait()
	}
}
