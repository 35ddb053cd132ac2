package staged

import (
	"cmp"
	"context"
	"slices"
	"strings"

	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

// Event is one change of one object, or a bookmark.
type Event struct {
	// Type is the kind of the change. A bookmark follows every change up to Revision.
	Type initializerv1.EventType
	// Object is the object after the change. When it was deleted it is the object before, with the version of the deletion; it has
	// neither object nor creator if it was deleted before the watch began. A bookmark has none.
	Object *initializerv1.StagedObject
	// Previous is the object before the change; nil for an added object, and for the events from before the watch began.
	Previous *initializerv1.StagedObject
	// Revision is the version of the change, which a watch may go on from.
	Revision int64
}

// Watcher receives changes of all objects, in the order of their revisions. It has one reader.
type Watcher struct {
	cache  *cache
	events chan Event
	after  int64 // changes up to this revision are left out
	err    error // set before events is closed
}

// Events are the changes. The channel is closed when the watch ends.
func (w *Watcher) Events() <-chan Event { return w.events }

// Err is the reason why Events was closed: ErrSlow, ErrStopped, or ErrTooOld if etcd was replaced by an older state of itself. It is
// nil after Stop. It may be called once Events is closed.
func (w *Watcher) Err() error { return w.err }

// Bookmark sends a bookmark behind the events so far, unless the reader is behind.
func (w *Watcher) Bookmark() {
	w.cache.mu.Lock()
	defer w.cache.mu.Unlock()
	if _, ok := w.cache.watchers[w]; !ok {
		return
	}
	select {
	case w.events <- Event{Type: initializerv1.EventType_EVENT_TYPE_BOOKMARK, Revision: max(w.after, w.cache.revision)}:
	default:
	}
}

// Stop ends the watch. It may be called several times, from any goroutine.
func (w *Watcher) Stop() {
	w.cache.mu.Lock()
	defer w.cache.mu.Unlock()
	w.cache.endLocked(w, nil)
}

// Watch returns the changes after a version that List or an event has given; an empty version is now. A reader that is more than
// buffer events behind loses its watch. The changes of an object from before the watch began are sent as one event. The caller ends
// the watch with Stop.
//
// Errors: ErrTooOld, ErrStopped, ErrUnavailable.
func (s *Store) Watch(ctx context.Context, after string, buffer int) (*Watcher, error) {
	if err := s.synchronize(ctx); err != nil {
		return nil, err
	}
	c := s.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	revision := c.revision
	if after != "" {
		var err error
		if revision, err = parseVersion(after); err != nil {
			return nil, err
		}
	}
	switch {
	case c.stopped:
		return nil, ErrStopped
	case revision < c.oldest || revision > c.revision:
		return nil, ErrTooOld
	}
	missed := c.sinceLocked(revision)
	w := &Watcher{cache: c, after: revision, events: make(chan Event, len(missed)+max(buffer, 1))}
	for _, e := range missed {
		w.events <- e // it has room for them
	}
	c.watchers[w] = struct{}{}
	return w, nil
}

// sinceLocked returns the latest change of each object after a revision.
func (c *cache) sinceLocked(revision int64) []Event {
	var events []Event
	for _, e := range c.entries {
		switch {
		case e.object == nil || e.set <= revision:
		case e.made > revision:
			events = append(events, Event{Type: initializerv1.EventType_EVENT_TYPE_ADDED, Object: e.object, Revision: e.set})
		default:
			events = append(events, Event{Type: initializerv1.EventType_EVENT_TYPE_MODIFIED, Object: e.object, Revision: e.set})
		}
	}
	for _, g := range c.graves {
		if g.set > revision && g.made <= revision {
			events = append(events, Event{Type: initializerv1.EventType_EVENT_TYPE_DELETED, Object: g.object, Revision: g.set})
		}
	}
	slices.SortFunc(events, func(a, b Event) int { return cmp.Compare(a.Revision, b.Revision) })
	return events
}

// List returns all objects in the order of their keys, and their version, to watch from. It has every write that was made before
// the call. Errors: ErrUnavailable, ErrStopped.
func (s *Store) List(ctx context.Context) ([]*initializerv1.StagedObject, string, error) {
	if err := s.synchronize(ctx); err != nil {
		return nil, "", err
	}
	c := s.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	entries := make([]*entry, 0, len(c.entries))
	for _, e := range c.entries {
		if e.object != nil {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b *entry) int { return strings.Compare(a.key, b.key) })
	objects := make([]*initializerv1.StagedObject, len(entries))
	for i, e := range entries {
		objects[i] = e.object
	}
	return objects, formatVersion(c.revision), nil
}

// Wait returns an object when its version differs from o's, which Create, Update or Wait has returned.
//
// Errors: ErrNotFound when it was deleted, ErrStopped, ErrUnreadable, or the cause of the end of ctx.
func (s *Store) Wait(ctx context.Context, o *initializerv1.StagedObject) (*initializerv1.StagedObject, error) {
	key := keyOf(s.prefix, o.GetKey())
	known, err := parseVersion(o.GetResourceVersion())
	if err != nil {
		return nil, err
	}
	for {
		next, changed, err := s.cache.next(key, o.GetUid(), known)
		if next != nil || err != nil {
			return next, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// next returns the object of a key if it has a later revision than a known one, and else a channel that is closed when it may have one.
func (c *cache) next(key, uid string, known int64) (*initializerv1.StagedObject, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key]
	switch {
	case c.stopped:
		return nil, nil, ErrStopped
	case c.revision < known:
		return nil, c.waiterLocked(key), nil
	case e == nil || e.object != nil && e.object.GetUid() != uid:
		return nil, nil, ErrNotFound
	case e.object == nil:
		return nil, nil, e.unread
	case e.set > known:
		return e.object, nil, nil
	}
	return nil, c.waiterLocked(key), nil
}
