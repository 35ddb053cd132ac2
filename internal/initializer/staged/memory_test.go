package staged_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// ledgerOf is a ledger of a size.
func ledgerOf(t *testing.T, total int64) *memory.Ledger {
	t.Helper()
	l, err := memory.New(memory.Options{Total: total})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// listed returns the names in a list.
func listed(t *testing.T, s *staged.Store) (names []string, objects []*initializerv1.StagedObject) {
	t.Helper()
	objects, _, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		names = append(names, o.GetKey().GetName())
	}
	return names, objects
}

// booked waits until a ledger has so much: the garbage collector finds unused objects.
func booked(t *testing.T, l *memory.Ledger, want int64) {
	t.Helper()
	for late := time.Now().Add(patience); l.InUse() != want; runtime.GC() {
		if time.Now().After(late) {
			t.Fatalf("%d bytes are booked, want %d", l.InUse(), want)
		}
		runtime.Gosched()
	}
}

// bookedFor is the number of bytes that a store books for its only object.
func bookedFor(t *testing.T, writer *staged.Store, o staged.Options) int64 {
	t.Helper()
	o.Memory = ledgerOf(t, 1<<30)
	create(t, writer, pod("flood", "p0", "0"))
	_, objects := listed(t, open(t, o))
	size := o.Memory.InUse()
	if content := int64(len(objects[0].GetObject().GetRaw())); size <= content {
		t.Fatalf("an object of %d bytes is booked with %d", content, size)
	}
	return size
}

// TestTheObjectsOfOtherDispatchersAreBookedToTheirCluster: as many as a cluster leaves free, and one more is not kept.
func TestTheObjectsOfOtherDispatchersAreBookedToTheirCluster(t *testing.T) {
	const share = 3
	client := etcd(t)
	writer := open(t, staged.Options{Client: client})
	size := bookedFor(t, writer, staged.Options{Client: client})
	registry := prometheus.NewRegistry()
	ledger := ledgerOf(t, 2*share*size)
	s := open(t, staged.Options{Client: client, Memory: ledger, Metrics: registry})
	for i := 1; i < share; i++ {
		create(t, writer, pod("flood", fmt.Sprint("p", i), fmt.Sprint(i)))
	}
	names, _ := listed(t, s)
	equal(t, "the share", "[p0 p1 p2]", fmt.Sprint(names))
	booked(t, ledger, share*size)

	over := create(t, writer, pod("flood", "p3", "3"))
	create(t, writer, pod("other", "q0", "4"))
	names, _ = listed(t, s)
	equal(t, "one more, and one of another cluster", "[p0 p1 p2 q0]", fmt.Sprint(names))
	booked(t, ledger, (share+1)*size)
	var full *memory.FullError
	if _, err := s.Get(t.Context(), over.GetKey()); !errors.As(err, &full) || full.Cluster != "flood" {
		t.Errorf("Get of the one that is not kept: %v", err)
	}
	if _, err := s.Wait(t.Context(), over); !errors.As(err, &full) || !errors.Is(err, staged.ErrUnreadable) {
		t.Errorf("Wait: %v", err)
	}
	if got := metrics(t, registry); !slices.Contains(got, "portcullis_staged_objects_unbooked{flood} = 1") {
		t.Errorf("metrics %v", got)
	}
	for _, name := range []string{"p0", "p1", "p2"} {
		if _, err := writer.Delete(t.Context(), pod("flood", name, "").GetKey(), "", ""); err != nil {
			t.Fatal(err)
		}
	}
	listed(t, s)
	booked(t, ledger, size) // of the other cluster
	update(t, writer, over, `{"metadata":{"name":"p3"}}`)
	names, _ = listed(t, s)
	equal(t, "a write of the one that was not kept, with room", "[p3 q0]", fmt.Sprint(names))
	booked(t, ledger, 2*size)
}

// TestAnObjectIsBookedAsLongAsItIsRead: a slow watch and a list keep objects that are gone.
func TestAnObjectIsBookedAsLongAsItIsRead(t *testing.T) {
	client := etcd(t)
	writer := open(t, staged.Options{Client: client})
	size := bookedFor(t, writer, staged.Options{Client: client})
	ledger := ledgerOf(t, 1<<30)
	s := open(t, staged.Options{Client: client, Memory: ledger})
	_, all := listed(t, s)
	slow := watch(t, s, all[0].GetResourceVersion(), 10)
	if _, err := writer.Delete(t.Context(), all[0].GetKey(), "", ""); err != nil {
		t.Fatal(err)
	}
	if names, _ := listed(t, s); len(names) > 0 {
		t.Fatalf("there are still %v", names)
	}
	booked(t, ledger, size) // by the list and by the watch
	if n := len(all[0].GetObject().GetRaw()); n == 0 {
		t.Error("the list has lost its object")
	}
	runtime.GC()
	booked(t, ledger, size) // by the watch
	if e := next(t, slow); e.Type != initializerv1.EventType_EVENT_TYPE_DELETED {
		t.Fatal(told(e))
	}
	booked(t, ledger, 0)
}
