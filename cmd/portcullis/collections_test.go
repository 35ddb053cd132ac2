package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
)

func TestTheHeapGrowsBetweenCollections(t *testing.T) {
	const mib, none = 1 << 20, math.MaxInt64
	for _, c := range []struct {
		alive, limit uint64 // bytes
		want         int
		growth       uint64 // bytes
	}{
		{0, none, 6400, leastGrowth}, {7 * mib, none, 920, leastGrowth}, {63 * mib, none, 110, leastGrowth}, {64 * mib, none, 100, leastGrowth},
		{1 << 40, none, 100, 1 << 40},
		{20 * mib, 920 * mib, 2250, 450 * mib}, {100 * mib, 920 * mib, 410, 410 * mib}, {306 * mib, 920 * mib, 110, 307 * mib},
		{400 * mib, 920 * mib, 100, 400 * mib}, {920 * mib, 920 * mib, 100, 920 * mib}, {1000 * mib, 920 * mib, 100, 1000 * mib},
		{10 * mib, 50 * mib, 640, leastGrowth}, {10 * mib, 0, 640, leastGrowth}, {100 * mib, 1 << 40, 1030, mostFreeGrowth},
	} {
		if got := percentOf(c.alive, c.limit); got != c.want {
			t.Errorf("GOGC with %d bytes alive of %d is %d, want %d", c.alive, c.limit, got, c.want)
		}
		if growth := max(c.alive, mib) * uint64(c.want) / 100; growth < c.growth {
			t.Errorf("with %d bytes alive of %d the heap grows by %d, want %d", c.alive, c.limit, growth, c.growth)
		}
	}
}

// TestACollectionSpacesTheNext has little and then much alive. The finalizer of a collection runs some time after it.
func TestACollectionSpacesTheNext(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	await := func(ok func(percent int) bool) {
		t.Helper()
		percent := 0
		for range 1000 {
			runtime.GC()
			percent = debug.SetGCPercent(100)
			debug.SetGCPercent(percent)
			if ok(percent) {
				return
			}
		}
		t.Fatalf("after 1000 collections GOGC is %d", percent)
	}
	spaceCollections()
	await(func(percent int) bool { return percent > 100 })

	alive := make([]byte, 2*leastGrowth)
	await(func(percent int) bool { return percent == 100 })
	runtime.KeepAlive(alive)

	await(func(percent int) bool { return percent > 100 })
}
