package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// leastGrowth is how many bytes the heap grows at least between two collections of garbage. Go lets it grow by as much as is alive, which is 10 to
	// 20 MiB in most dispatchers (docs/design/0047).
	leastGrowth = 64 << 20
	// mostFreeGrowth is how many bytes it grows at most because they are free below a limit of memory: a machine may have very many.
	mostFreeGrowth = 1 << 30
)

// spaceCollections has each collection set GOGC for the next one.
func spaceCollections() {
	(&collection{
		samples: []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}},
		limit:   uint64(debug.SetMemoryLimit(-1)),
	}).ended()
}

// collection becomes garbage at once, so that its finalizer runs after the next collection.
type collection struct {
	samples []metrics.Sample // of the bytes of which GOGC is a part
	limit   uint64           // GOMEMLIMIT in bytes
	percent int              // the GOGC that is set
}

func (c *collection) ended() {
	metrics.Read(c.samples)
	alive := uint64(0)
	for _, s := range c.samples {
		alive += s.Value.Uint64()
	}
	if percent := percentOf(alive, c.limit); percent != c.percent {
		c.percent = percent
		debug.SetGCPercent(percent)
	}
	runtime.SetFinalizer(c, (*collection).ended)
}

// percentOf is the GOGC by which the heap grows by leastGrowth, by half of the memory that is free below a limit, or by as much as is alive: whichever is
// most. It is rounded up to a multiple of 10, so that it is seldom set anew: that stops all goroutines for a moment. A limit of [math.MaxInt64] bytes is
// none.
func percentOf(alive, limit uint64) int {
	alive = max(alive, 1<<20)
	growth := max(leastGrowth, alive)
	if limit < math.MaxInt64 && limit > alive {
		growth = max(growth, min((limit-alive)/2, mostFreeGrowth))
	}
	return int((10*growth+alive-1)/alive) * 10
}
