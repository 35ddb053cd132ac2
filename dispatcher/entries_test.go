package dispatcher

import (
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// withHooks is a snapshot of validating hooks.
func withHooks(revision string, names ...string) *match.Snapshot {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	for _, name := range names {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: name})
	}
	s, _ := match.Compile(match.Input{Revision: revision, Objects: []match.Object{{Validating: c}}})
	return s
}

// entryOf is an entry that was made from a snapshot.
func entryOf(s *match.Snapshot) match.Entry {
	return match.NewEntry(match.EntryFailClosed, time.Second, s.EntryHooks("east"), nil)
}

func TestTheLatestEntryOfEachClusterIsComparedWithTheConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e entries
		one, two := withHooks("1", "a", "b"), withHooks("2", "a", "c")
		e.recordUse("west", entryOf(one), time.Now())
		e.recordUse("east", entryOf(two), time.Now())
		e.recordUse("east", entryOf(one), time.Now()) // within entryInterval
		e.recordUse("direct", match.Entry{}, time.Now())
		e.recordUse("another", match.ParseEntry("of-my-own/10."), time.Now())
		e.recordUse("old", match.Entry{Name: match.EntryFailOpen}, time.Now())
		for _, tt := range []struct {
			with            *match.Snapshot
			cluster         int // of east, old and west
			unplanned, gone int
		}{
			{one, 0, 0, 0}, {one, 1, 2, 0}, {one, 2, 0, 0},
			{two, 0, 1, 1}, {two, 1, 2, 0}, {two, 2, 1, 1}, {one, 2, 0, 0},
		} {
			all := e.drifts(tt.with, time.Now())
			if len(all) != 3 || all[0].Cluster != "east" || all[1].Cluster != "old" || all[2].Cluster != "west" {
				t.Fatalf("clusters %+v", all)
			}
			d := all[tt.cluster]
			if len(d.Unplanned) != tt.unplanned || d.Gone != tt.gone || d.Any() != (tt.unplanned+tt.gone > 0) {
				t.Errorf("%s with %s: %d unplanned, %d gone, want %d and %d", d.Cluster, tt.with.Revision(), len(d.Unplanned), d.Gone, tt.unplanned, tt.gone)
			}
		}
		<-time.After(EntryMemory)
		e.recordUse("east", entryOf(one), time.Now())
		<-time.After(time.Nanosecond)
		if all := e.drifts(one, time.Now()); len(all) != 1 || all[0].Cluster != "east" {
			t.Errorf("after %s: %+v", EntryMemory, all)
		}
		e.recordUse("west", entryOf(one), time.Now())
		e.keep([]string{"north", "west"})
		if all := e.drifts(one, time.Now()); len(all) != 1 || all[0].Cluster != "west" {
			t.Errorf("after east was removed: %+v", all)
		}
	})
}

func TestAnEntryThatIsKnownCostsNothing(t *testing.T) {
	var e entries
	entry, now := entryOf(withHooks("1", "a", "b")), time.Now()
	e.recordUse("east", entry, now)
	if allocs := testing.AllocsPerRun(100, func() { e.recordUse("east", entry, now) }); allocs > 1 { // the name as a key
		t.Errorf("%v allocations", allocs)
	}
}
