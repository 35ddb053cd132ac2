package staged

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

// have is the entry of a key that was made and set at revisions. Its lease is 1.
func have(key string, made, set int64) *entry {
	return &entry{key: key, lease: 1, made: made, set: set, object: &initializerv1.StagedObject{
		Key: &initializerv1.StagedKey{Name: key}, Uid: fmt.Sprint(key, made), ResourceVersion: formatVersion(set),
	}}
}

// subscribe is a watch with much room.
func subscribe(c *cache, after int64) *Watcher {
	w := &Watcher{cache: c, after: after, events: make(chan Event, 1000)}
	c.watchers[w] = struct{}{}
	return w
}

// drain describes the events so far: type, key and revision.
func drain(w *Watcher) (out []string) {
	for {
		select {
		case e, ok := <-w.events:
			if !ok {
				return out
			}
			out = append(out, fmt.Sprint(e.Type.String()[len("EVENT_TYPE_"):], " ", e.Object.GetKey().GetName(), " ", e.Revision))
		default:
			return out
		}
	}
}

// A second list shows the changes since the first one, which is a and b, made at 2 and 3, at revision 10.
func TestListsAreCompared(t *testing.T) {
	for name, test := range map[string]struct {
		list     []*entry
		revision int64
		want     []string
	}{
		"nothing":                       {[]*entry{have("a", 2, 2), have("b", 3, 3)}, 12, nil},
		"a change and an addition":      {[]*entry{have("a", 2, 12), have("b", 3, 3), have("c", 11, 11)}, 12, []string{"ADDED c 11", "MODIFIED a 12"}},
		"everything has gone":           {nil, 14, []string{"DELETED a 11", "DELETED b 12"}},
		"one has gone, one was changed": {[]*entry{have("b", 3, 11)}, 12, []string{"MODIFIED b 11", "DELETED a 12"}},
		"another one of the same key":   {[]*entry{have("a", 13, 14), have("b", 3, 3)}, 14, []string{"DELETED a 11", "ADDED a 14"}},
		"another one, and one has gone": {[]*entry{have("b", 12, 12)}, 13, []string{"DELETED b 11", "ADDED b 12", "DELETED a 13"}},
		"both deleted in one revision":  {nil, 11, []string{"DELETED a 11", "DELETED b 11"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCache()
			c.list([]*entry{have("a", 2, 2), have("b", 3, 3)}, 10)
			w := subscribe(c, 10)
			c.list(test.list, test.revision)
			if diff := cmp.Diff(test.want, drain(w)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if c.revision != test.revision || len(c.entries) != len(test.list) {
				t.Errorf("%d objects at %d", len(c.entries), c.revision)
			}
		})
	}
}

// An etcd that was restored to an older state has other revisions: nobody can go on.
func TestAnOlderEtcdEndsAllWatches(t *testing.T) {
	c := newCache()
	c.list([]*entry{have("a", 2, 2)}, 10)
	w := subscribe(c, 10)
	c.list([]*entry{have("b", 3, 3)}, 9)
	if _, ok := <-w.events; ok || !errors.Is(w.err, ErrTooOld) {
		t.Errorf("the watch goes on, or has ended by %v", w.err)
	}
	if c.revision != 9 || c.oldest != 9 || c.entries["a"] != nil || c.entries["b"] == nil {
		t.Errorf("after that: %+v", c)
	}
}

// An unreadable object counts as missing, and as an object again once it can be read.
func TestUnreadableObjects(t *testing.T) {
	c := newCache()
	c.list(nil, 1)
	w := subscribe(c, 1)
	unreadable := &entry{key: "a", made: 2, set: 3, unread: ErrUnreadable}
	for _, e := range []*entry{have("a", 2, 2), unreadable, have("a", 2, 4)} {
		c.putLocked(e)
		if e == unreadable {
			if _, _, err := c.next("a", "a2", 2); !errors.Is(err, ErrUnreadable) {
				t.Errorf("a wait: %v", err)
			}
		}
	}
	c.removeLocked("a", 5)
	c.putLocked(&entry{key: "a", made: 6, set: 6, unread: ErrUnreadable})
	c.removeLocked("a", 7)
	if diff := cmp.Diff([]string{"ADDED a 2", "DELETED a 3", "ADDED a 4", "DELETED a 5"}, drain(w)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// The deletions that are remembered are bounded, and a watch from before the first of them is refused.
func TestDeletionsAreForgotten(t *testing.T) {
	c := newCache()
	c.list(nil, 1)
	revision := int64(1)
	for range maxGraves + 10 {
		c.putLocked(have("a", revision+1, revision+1))
		c.removeLocked("a", revision+2)
		revision += 2
	}
	if len(c.graves) != maxGraves || c.oldest != 1+2*10 {
		t.Errorf("%d deletions are remembered, those after %d", len(c.graves), c.oldest)
	}
	if g := c.graves[0]; g.set != c.oldest+2 || g.object.GetObject() != nil {
		t.Errorf("the first one is %+v", g)
	}
}

// A reader ends with all existing objects, whenever its watch begins and from any version that it has seen: random changes, and lists
// in the place of some changes.
func TestAReaderThatGoesOnHasEverything(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		c, truth, revision := newCache(), map[string]*entry{}, int64(1)
		c.list(nil, revision)
		type reader struct {
			has  map[string]string // uid by key
			seen int64
			w    *Watcher
		}
		readers := make([]*reader, 4)
		for i := range readers {
			readers[i] = &reader{has: map[string]string{}, seen: 1, w: subscribe(c, 1)}
		}
		take := func(r *reader, n int) {
			for ; n > 0 && len(r.w.events) > 0; n-- {
				e := <-r.w.events
				if e.Revision < r.seen {
					t.Fatalf("seed %d: %v at %d after %d", seed, e.Type, e.Revision, r.seen)
				}
				key := e.Object.GetKey().GetName()
				if e.Type == initializerv1.EventType_EVENT_TYPE_DELETED {
					delete(r.has, key)
				} else {
					r.has[key] = e.Object.GetUid() + "@" + e.Object.GetResourceVersion()
				}
				r.seen = e.Revision
			}
		}
		for range 200 {
			blind := random.IntN(10) == 0 // the watch of etcd misses some, and a list follows
			for range 1 + random.IntN(4) {
				revision++
				key := fmt.Sprint("k", random.IntN(4))
				e := truth[key]
				switch {
				case e == nil:
					truth[key] = have(key, revision, revision)
				case random.IntN(2) == 0:
					truth[key] = have(key, e.made, revision)
				default:
					delete(truth, key)
				}
				if now := truth[key]; !blind && now != nil {
					c.putLocked(now)
				} else if !blind {
					c.removeLocked(key, revision)
				}
			}
			if blind {
				var all []*entry
				for _, e := range truth {
					all = append(all, e)
				}
				c.list(all, revision)
			}
			r := readers[random.IntN(len(readers))]
			take(r, random.IntN(6))
			if random.IntN(4) == 0 && r.seen >= c.oldest { // it goes on from the version that it has seen
				c.endLocked(r.w, nil)
				missed := c.sinceLocked(r.seen)
				r.w = subscribe(c, r.seen)
				for _, e := range missed {
					r.w.events <- e
				}
			}
		}
		want := map[string]string{}
		for key, e := range truth {
			want[key] = e.object.GetUid() + "@" + e.object.GetResourceVersion()
		}
		for i, r := range readers {
			take(r, 1<<30)
			if diff := cmp.Diff(want, r.has); diff != "" {
				t.Fatalf("seed %d: reader %d (-want +got):\n%s", seed, i, diff)
			}
		}
	}
}
