package pool

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// LatestCalls is how many calls of a replica its percentiles are of.
const LatestCalls = 128

// latest holds how long the latest calls of a replica took: 520 bytes from the first one on, apart from the fields of the replica that
// picks read. All methods may be called concurrently; a listing that meets a call may have a call of an earlier round in its place.
type latest struct{ ring atomic.Pointer[latestRing] }

type latestRing struct {
	n     atomic.Uint64              // calls so far
	calls [LatestCalls]atomic.Uint32 // us
}

func (l *latest) record(d time.Duration) {
	ring := l.ring.Load()
	if ring == nil {
		l.ring.CompareAndSwap(nil, new(latestRing))
		ring = l.ring.Load()
	}
	ring.calls[(ring.n.Add(1)-1)%LatestCalls].Store(uint32(min(max(0, d.Microseconds()), math.MaxUint32)))
}

// percentiles returns the median and the 99th percentile; zeros without calls.
func (l *latest) percentiles() (p50, p99 time.Duration) {
	ring := l.ring.Load()
	if ring == nil || ring.n.Load() == 0 {
		return 0, 0
	}
	n := min(ring.n.Load(), LatestCalls)
	sorted := make([]uint32, n)
	for i := range sorted {
		sorted[i] = ring.calls[i].Load()
	}
	slices.Sort(sorted)
	at := func(percent uint64) time.Duration { // the nearest rank
		return time.Duration(sorted[(percent*n+99)/100-1]) * time.Microsecond
	}
	return at(50), at(99)
}
