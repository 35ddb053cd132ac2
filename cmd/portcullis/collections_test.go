package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestTheHeapGrowsBetweenCollections(t *testing.T) {
	for alive, want := range map[uint64]int{0: 6400, 1 << 20: 6400, 7 << 20: 900, 20 << 20: 300, 33 << 20: 100, 64 << 20: 100, 1 << 40: 100} {
		if got := percentOf(alive); got != want {
			t.Errorf("GOGC with %d bytes alive is %d, want %d", alive, got, want)
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
