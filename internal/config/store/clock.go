package store

import "time"

// Since is how long ago t was, t being a result of time.Now: by the monotonic clock or by the wall clock, whichever says
// longer. The monotonic clock stands still while the machine is suspended or its hypervisor pauses it; the wall clock may be
// set back. Setting the wall clock forward makes things look older than they are until they are renewed.
func Since(t time.Time) time.Duration { return elapsed(time.Now(), t).longer() }

// elapsedSince measures how long ago a moment was. elapsedNow is the one outside of tests.
type elapsedSince func(t time.Time) interval

// interval is the time between two moments by two clocks.
type interval struct{ monotonic, wall time.Duration }

func (i interval) longer() time.Duration { return max(i.monotonic, i.wall) }

func elapsedNow(t time.Time) interval { return elapsed(time.Now(), t) }

func elapsed(now, t time.Time) interval {
	return interval{monotonic: now.Sub(t), wall: now.Round(0).Sub(t.Round(0))}
}
