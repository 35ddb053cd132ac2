//go:build !linux

package measure

import (
	"context"
	"time"
)

// waitUntil waits for a moment, as exactly as timers are.
func waitUntil(ctx context.Context, due time.Time) error {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
