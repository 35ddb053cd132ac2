package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestTheHeapGrowsBetweenCollections(t *testing.T) {
	for alive, want := range map[uint64]int{0: 6400, 1 << 20: 6400, 7 << 20: 920, 20 << 20: 320, 33 << 20: 200, 63 << 20: 110, 64 << 20: 100, 1 << 40: 100} {
		if got := percentOf(alive); got != want {
			t.Errorf("GOGC with %d bytes alive is %d, want %d", alive, got, want)
		}
		if growth := max(alive, 1<<20) * uint64(want) / 100; growth < leastGrowth {
			t.Errorf("with %d bytes alive the heap grows by %d", alive, growth)
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
