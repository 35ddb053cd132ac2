package weakmap_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/weakmap"
)

func TestAValueStaysAsLongAsSomebodyHoldsIt(t *testing.T) {
	var m weakmap.Map[[1 << 10]byte]
	if m.Get("a") != nil {
		t.Error("an empty map has a value")
	}
	held := new([1 << 10]byte)
	m.Put("held", held)
	m.Put("dropped", new([1 << 10]byte))
	for deadline := time.Now().Add(time.Minute); m.Len() != 1; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("%d names are known", m.Len())
		}
		runtime.Gosched()
	}
	if m.Get("held") != held || m.Get("dropped") != nil {
		t.Error("another value than that which is held")
	}
	runtime.KeepAlive(held)
}
