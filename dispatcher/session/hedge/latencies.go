package hedge

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// latencies estimates the 95th percentile of the latest calls, in a fixed size: counts by magnitude, eight to a power of
// two. The estimate is never below the exact value, and at most an eighth above it. Old calls fade: when [Window] calls are
// counted twice over, all counts are halved. All methods may be called concurrently; a call that is counted while others
// are halved may weigh a little more or less.
type latencies struct {
	counts  [magnitudes]atomic.Uint32
	seen    atomic.Uint64
	percent atomic.Int64 // the estimate, ns; 0 before there is one
}

const (
	magnitudeBits = 3  // eight counts to a power of two
	longestBits   = 26 // of a time in us: a minute
	magnitudes    = (longestBits - magnitudeBits + 1) << magnitudeBits
	recountEvery  = Samples // calls between two estimates
)

func (l *latencies) observe(d time.Duration) {
	l.counts[magnitude(d)].Add(1)
	if l.seen.Add(1)%recountEvery == 0 {
		l.recount()
	}
}

// p95 is the estimate; 0 while fewer than [Samples] calls have been seen.
func (l *latencies) p95() time.Duration { return time.Duration(l.percent.Load()) }

func (l *latencies) recount() {
	var counts [magnitudes]uint32
	var sum uint64
	for i := range l.counts {
		counts[i] = l.counts[i].Load()
		sum += uint64(counts[i])
	}
	below := uint64(0)
	for i, n := range counts {
		if below += uint64(n); 100*below >= 95*sum {
			l.percent.Store(int64(longest(i)))
			break
		}
	}
	if sum < 2*Window {
		return
	}
	for i, n := range counts {
		l.counts[i].Add(-(n - n/2))
	}
}

// magnitude is the index of a duration in the counts.
func magnitude(d time.Duration) int {
	us := uint64(min(max(0, d.Microseconds()), 1<<longestBits-1))
	if us < 1<<magnitudeBits {
		return int(us)
	}
	shift := bits.Len64(us) - magnitudeBits - 1
	return (shift+1)<<magnitudeBits | int(us>>shift)&(1<<magnitudeBits-1)
}

// longest is the longest duration that is counted at an index.
func longest(place int) time.Duration {
	us, shift := uint64(place), place>>magnitudeBits-1
	if shift >= 0 {
		us = (1<<magnitudeBits|us&(1<<magnitudeBits-1)+1)<<shift - 1
	}
	return time.Duration(us+1) * time.Microsecond
}
