// Package connect reaches the mesh that a command is for.
package connect

import (
	"context"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/clock"
)

// Retry calls once until it returns nil, ctx ends, or an error after which lost does not want to go on. It returns the last
// error. Between two calls it waits.
func Retry(ctx context.Context, wait time.Duration, once func(context.Context) error, lost func(error) bool) error {
	for {
		err := once(ctx)
		if err == nil || ctx.Err() != nil || !lost(err) {
			return err
		}
		clock.Sleep(ctx, wait)
	}
}
