//go:build !linux

package measure

import (
	"context"
	"time"
)

// alarm wakes one goroutine at moments, as exactly as timers are.
type alarm struct{}

func newAlarm() (*alarm, error) { return &alarm{}, nil }

func (*alarm) close() {}

// wait waits for a moment, or the end of ctx.
func (*alarm) wait(ctx context.Context, due time.Time) error {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
