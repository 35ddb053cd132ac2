package session

import (
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
)

// watch is how a router looks after its sessions: each one every tick, and a part of them at a time, so that thousands
// are not asked for a sign of life in the same moment. It has no goroutine and no clock.
type watch struct {
	shard int
	last  time.Time
}

// tick returns the shard whose turn it is, and how much of the time since the last tick is no silence of a host: all but the interval of
// ticks. A process that was stopped, that is throttled, or whose processors are all taken has not listened either.
func (w *watch) tick(now time.Time) (turn int, missed time.Duration) {
	if !w.last.IsZero() {
		missed = max(0, now.Sub(w.last)-stream.TickInterval)
	}
	w.last, w.shard = now, (w.shard+1)%stream.TickShards
	return w.shard, missed
}
