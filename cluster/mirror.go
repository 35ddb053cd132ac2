package cluster

import (
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// FreshFor is how long what a cluster has told counts after its last sign of life: of a watch, anything that comes through
// it, which with an API server is a bookmark about once a minute when nothing else happens; of discovery, an answer.
const FreshFor = 90 * time.Second

// mirror holds something of all objects of a resource of a cluster, as a cache.Reflector tells them. The reflector is its
// only writer; reading takes no lock.
type mirror[T any] struct {
	// read takes from an object what is held of it.
	read func(obj any) (T, error)
	// changed is told each time what is held, before it is there; nil: nobody is.
	changed func(items map[string]T)

	items atomic.Pointer[map[string]T] // by name; nil before the first list; never changed
	pulse pulse
}

var (
	_ cache.ReflectorStore         = (*mirror[int])(nil)
	_ cache.ReflectorBookmarkStore = (*mirror[int])(nil)
)

// lookup returns what is held of an object; ok is false when the cluster has to be asked.
func (m *mirror[T]) lookup(name string) (item T, ok bool) {
	if !m.pulse.fresh() {
		return item, false
	}
	item, ok = (*m.items.Load())[name]
	return item, ok
}

// inherit takes over what another mirror of the same cluster knows, and since when.
func (m *mirror[T]) inherit(from *mirror[T]) {
	if items := from.items.Load(); items != nil {
		m.publish(*items)
		m.pulse.inherit(&from.pulse)
	}
}

func (m *mirror[T]) publish(items map[string]T) {
	if m.changed != nil {
		m.changed(items)
	}
	m.items.Store(&items)
}

// set publishes items. Everything that the reflector says is a sign of life.
func (m *mirror[T]) set(items map[string]T) error {
	m.publish(items)
	m.pulse.beat(time.Now())
	return nil
}

// all are the items; nil before the first list.
func (m *mirror[T]) all() map[string]T {
	if items := m.items.Load(); items != nil {
		return *items
	}
	return nil
}

// change publishes a copy of the items with one change.
func (m *mirror[T]) change(obj any, edit func(items map[string]T, name string, item T)) error {
	name, item, err := m.take(obj)
	if err != nil {
		return err
	}
	items := maps.Clone(m.all())
	if items == nil {
		items = map[string]T{}
	}
	edit(items, name, item)
	return m.set(items)
}

// take reads an object.
func (m *mirror[T]) take(obj any) (name string, item T, err error) {
	o, err := meta.Accessor(obj)
	if err != nil {
		return "", item, fmt.Errorf("the watch told of a %T: %w", obj, err)
	}
	item, err = m.read(obj)
	return o.GetName(), item, err
}

// Add implements cache.ReflectorStore.
func (m *mirror[T]) Add(obj any) error { return m.Update(obj) }

// Update implements cache.ReflectorStore.
func (m *mirror[T]) Update(obj any) error {
	return m.change(obj, func(items map[string]T, name string, item T) { items[name] = item })
}

// Delete implements cache.ReflectorStore.
func (m *mirror[T]) Delete(obj any) error {
	return m.change(obj, func(items map[string]T, name string, _ T) { delete(items, name) })
}

// Replace implements cache.ReflectorStore.
func (m *mirror[T]) Replace(objs []any, _ string) error {
	items := make(map[string]T, len(objs))
	for _, obj := range objs {
		name, item, err := m.take(obj)
		if err != nil {
			return err
		}
		items[name] = item
	}
	return m.set(items)
}

// Bookmark implements cache.ReflectorBookmarkStore.
func (m *mirror[T]) Bookmark(string) error {
	if m.all() != nil {
		m.pulse.beat(time.Now())
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (m *mirror[T]) Resync() error { return nil }
