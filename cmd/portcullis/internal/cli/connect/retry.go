// Package connect reaches the mesh that a command is for.
package connect

import (
	"context"
	"time"
)

// Retry calls once until it returns nil, ctx ends, or an error after which lost does not want to go on. It returns the last
// error. Between two calls it waits.
func Retry(ctx context.Context, wait time.Duration, once func(context.Context) error, lost func(error) bool) error {
	for {
		err := once(ctx)
		if err == nil || ctx.Err() != nil || !lost(err) {
			return err
		}
		Pause(ctx, wait)
	}
}

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
