package staged

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

// maxGraves bounds the deletions that are remembered for watches that begin at an earlier version.
const maxGraves = 4096

// entry is an object in etcd.
type entry struct {
	key       string                      // of etcd
	object    *initializerv1.StagedObject // nil if it cannot be read
	unread    error                       // why not
	lease     LeaseID
	made, set int64 // revisions of its creation and of its last write
}

// grave is an object that was deleted.
type grave struct {
	object    *initializerv1.StagedObject // without its content and its creator
	made, set int64                       // revisions of its creation and of its deletion
}

// cache holds the objects of etcd, by one list and the watch that follows it. It keeps no object that is not in etcd: a watch that begins
// at an earlier version gets the latest change of each object, and the deletions without the content of the objects.
type cache struct {
	mu       sync.Mutex
	revision int64 // of etcd, up to which all changes are here; 0 before the first list
	stopped  bool
	entries  map[string]*entry
	graves   []grave // in the order of their deletion
	oldest   int64   // a watch may begin at this version or a later one
	watchers map[*Watcher]struct{}
	waiters  map[string]chan struct{} // by key; "" for any progress; closed and removed when it happens
}

func newCache() *cache {
	return &cache{entries: map[string]*entry{}, watchers: map[*Watcher]struct{}{}, waiters: map[string]chan struct{}{}}
}

// waiterLocked is closed when the object of a key changes, or, for the empty key, when the revision does.
func (c *cache) waiterLocked(key string) <-chan struct{} {
	if c.waiters[key] == nil {
		c.waiters[key] = make(chan struct{})
	}
	return c.waiters[key]
}

func (c *cache) wakeLocked(key string) {
	if waiter := c.waiters[key]; waiter != nil {
		close(waiter)
		delete(c.waiters, key)
	}
}

// has reports whether there was an object of a key when etcd was heard last.
func (c *cache) has(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[key] != nil
}

// advanceLocked records that all changes up to a revision are here.
func (c *cache) advanceLocked(revision int64) {
	if revision > c.revision {
		c.revision = revision
		c.wakeLocked("")
	}
}

// putLocked takes a write of a key.
func (c *cache) putLocked(e *entry) {
	before := c.entries[e.key]
	if before != nil && (e.object == nil || before.object.GetUid() != e.object.GetUid()) {
		c.buryLocked(before, e.set) // of another hold
		before = nil
	}
	c.entries[e.key] = e
	c.advanceLocked(e.set)
	c.wakeLocked(e.key)
	switch {
	case e.object == nil:
	case before == nil:
		c.tellLocked(Event{Type: initializerv1.EventType_EVENT_TYPE_ADDED, Object: e.object, Revision: e.set})
	default:
		c.tellLocked(Event{Type: initializerv1.EventType_EVENT_TYPE_MODIFIED, Object: e.object, Previous: before.object, Revision: e.set})
	}
}

// removeLocked takes the deletion of a key.
func (c *cache) removeLocked(key string, revision int64) {
	if before := c.entries[key]; before != nil {
		delete(c.entries, key)
		c.buryLocked(before, revision)
	}
	c.advanceLocked(revision)
	c.wakeLocked(key)
}

// buryLocked records and sends the deletion of an object.
func (c *cache) buryLocked(e *entry, revision int64) {
	if e.object == nil {
		return
	}
	c.tellLocked(Event{
		Type: initializerv1.EventType_EVENT_TYPE_DELETED, Object: at(e.object, revision), Previous: e.object, Revision: revision,
	})
	remains := at(e.object, revision)
	remains.Object, remains.Creator = nil, nil
	c.graves = append(c.graves, grave{object: remains, made: e.made, set: revision})
	if n := len(c.graves) - maxGraves; n > 0 {
		c.oldest = c.graves[n-1].set
		c.graves = slices.Delete(c.graves, 0, n)
	}
}

// tellLocked passes an event on to every watch.
func (c *cache) tellLocked(e Event) {
	for w := range c.watchers {
		if e.Revision > w.after {
			c.sendLocked(w, e)
		}
	}
}

// sendLocked passes an event on to a watch, which ends if it has no room.
func (c *cache) sendLocked(w *Watcher, e Event) {
	select {
	case w.events <- e:
	default:
		c.endLocked(w, ErrSlow)
	}
}

func (c *cache) endLocked(w *Watcher, err error) {
	if _, ok := c.watchers[w]; ok {
		delete(c.watchers, w)
		w.err = err
		close(w.events)
	}
}

// delta is the change of a key between two lists.
type delta struct {
	key      string
	entry    *entry // nil: it was deleted
	revision int64
}

// list takes all objects at a revision, and sends the changes since the last list or event.
func (c *cache) list(all []*entry, revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if revision < c.revision {
		c.forgetLocked()
	}
	if c.revision == 0 {
		c.oldest = revision
	}
	for _, x := range c.changesLocked(all, revision) {
		if x.entry == nil {
			c.removeLocked(x.key, x.revision)
		} else {
			c.putLocked(x.entry)
		}
	}
	c.advanceLocked(revision)
	for key := range c.waiters { // a key that came and went between two lists has no change
		c.wakeLocked(key)
	}
}

// changesLocked compares a list with the entries. The changes are in the order of their revisions.
func (c *cache) changesLocked(all []*entry, revision int64) []delta {
	present, used := make(map[string]*entry, len(all)), make(map[int64]bool, len(all))
	var changes []delta
	for _, e := range all {
		present[e.key], used[e.set] = e, true
		if before := c.entries[e.key]; before == nil || before.set != e.set {
			changes = append(changes, delta{e.key, e, e.set})
		}
	}
	changes = append(c.deletionsLocked(present, used, revision), changes...)
	slices.SortStableFunc(changes, func(a, b delta) int { return cmp.Compare(a.revision, b.revision) })
	return changes
}

// deletionsLocked returns the deletions that a list shows. Each object was deleted at a revision that is not known: it gets the
// first one since the last list at which nothing else has changed, so that a watch can go on after any of them. Keys that exist
// again come first, since their deletion came before that.
func (c *cache) deletionsLocked(present map[string]*entry, used map[int64]bool, revision int64) []delta {
	var gone []delta
	for key, before := range c.entries {
		switch now := present[key]; {
		case now == nil:
			gone = append(gone, delta{key: key, revision: revision})
		case now.made != before.made:
			gone = append(gone, delta{key: key, revision: now.made - 1})
		}
	}
	slices.SortFunc(gone, func(a, b delta) int {
		return cmp.Or(cmp.Compare(a.revision, b.revision), strings.Compare(a.key, b.key))
	})
	next := c.revision + 1
	for i := range gone {
		for used[next] {
			next++
		}
		gone[i].revision = min(gone[i].revision, next)
		next++
	}
	return gone
}

// forgetLocked is called when etcd is an older state of itself, or another one: no watch can go on from a version.
func (c *cache) forgetLocked() {
	for w := range c.watchers {
		c.endLocked(w, ErrTooOld)
	}
	c.revision, c.graves = 0, nil
	clear(c.entries)
}

// stop ends all watches, and every wait.
func (c *cache) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	for w := range c.watchers {
		c.endLocked(w, ErrStopped)
	}
	for key := range c.waiters {
		c.wakeLocked(key)
	}
}
