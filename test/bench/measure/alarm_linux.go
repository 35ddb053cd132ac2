package measure

import (
	"context"
	"syscall"
	"time"
)

// longestSleep bounds how late the end of a context is noticed.
const longestSleep = 10 * time.Millisecond

// waitUntil waits for a moment. An idle Go program wakes its timers a millisecond late, which would make bursts of a
// hundred reviews out of a fast rate; the system's own sleep is late by a twentieth of that.
func waitUntil(ctx context.Context, due time.Time) error {
	for left := time.Until(due); left > 0; left = time.Until(due) {
		if err := ctx.Err(); err != nil {
			return err
		}
		sleep := syscall.NsecToTimespec(min(left, longestSleep).Nanoseconds())
		_ = syscall.Nanosleep(&sleep, nil) // a signal ends it early, and the loop goes on
	}
	return ctx.Err()
}
