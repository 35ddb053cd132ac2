package cluster

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// objectCache holds one value for each object of a resource of a cluster. A cache.Reflector is the only writer; readers take
// no lock, unlike those of a cache.Store.
type objectCache[O metav1.Object, T any] struct {
	// read returns the value of an object.
	read func(O) T
	// changed is called with the items before they are published; it may be nil.
	changed func(items map[string]T)

	items     atomic.Pointer[map[string]T] // by name; nil before the first list; never changed
	freshness freshness
}

var (
	_ cache.ReflectorStore         = (*objectCache[metav1.Object, int])(nil)
	_ cache.ReflectorBookmarkStore = (*objectCache[metav1.Object, int])(nil)
)

// lookup returns the value of an object. ok is false if the cache is stale or does not have the object.
func (c *objectCache[O, T]) lookup(name string) (item T, ok bool) {
	if !c.freshness.fresh() {
		return item, false
	}
	item, ok = (*c.items.Load())[name]
	return item, ok
}

// seedFrom takes over the items and freshness of another cache of the same resource.
func (c *objectCache[O, T]) seedFrom(other *objectCache[O, T]) {
	if items := other.items.Load(); items != nil {
		c.publish(*items)
		c.freshness.seedFrom(&other.freshness)
	}
}

func (c *objectCache[O, T]) publish(items map[string]T) {
	if c.changed != nil {
		c.changed(items)
	}
	c.items.Store(&items)
}

// edit publishes a copy of the items with one change.
func (c *objectCache[O, T]) edit(obj any, change func(items map[string]T, o O)) error {
	o, ok := obj.(O)
	if !ok {
		return unexpectedObject(obj)
	}
	items := map[string]T{}
	if before := c.items.Load(); before != nil {
		items = maps.Clone(*before)
	}
	change(items, o)
	c.publish(items)
	c.freshness.markFresh(time.Now())
	return nil
}

func unexpectedObject(obj any) error { return fmt.Errorf("the watch told of a %T", obj) }

func (c *objectCache[O, T]) Add(obj any) error { return c.Update(obj) }

func (c *objectCache[O, T]) Update(obj any) error {
	return c.edit(obj, func(items map[string]T, o O) { items[o.GetName()] = c.read(o) })
}

func (c *objectCache[O, T]) Delete(obj any) error {
	return c.edit(obj, func(items map[string]T, o O) { delete(items, o.GetName()) })
}

func (c *objectCache[O, T]) Replace(objs []any, _ string) error {
	items := make(map[string]T, len(objs))
	for _, obj := range objs {
		o, ok := obj.(O)
		if !ok {
			return unexpectedObject(obj)
		}
		items[o.GetName()] = c.read(o)
	}
	c.publish(items)
	c.freshness.markFresh(time.Now())
	return nil
}

func (c *objectCache[O, T]) Bookmark(string) error {
	if c.items.Load() != nil {
		c.freshness.markFresh(time.Now())
	}
	return nil
}

func (c *objectCache[O, T]) Resync() error { return nil }

// watched takes the start of a watch as a sign of life: the API server sends at once what the items lack. It sends no bookmark on a
// watch while its last event is no newer than the start (process in k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go).
func (c *objectCache[O, T]) watched(begun time.Time) {
	if c.items.Load() != nil {
		c.freshness.markFresh(begun)
	}
}

// collection is the part of a typed client that a reflector needs.
type collection[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// watchInto fills a cache until ctx ends. When a watch breaks, the reflector lists again with a back-off. example is an object
// of the resource; name is for logs.
func watchInto[L runtime.Object, O metav1.Object, T any](
	ctx context.Context, name string, of collection[L], example runtime.Object, c *objectCache[O, T],
) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list, err := of.List(ctx, opts)
			c.freshness.markFailed(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			seconds := c.freshness.watchFor()
			opts.TimeoutSeconds = &seconds
			begun := time.Now()
			w, err := of.Watch(ctx, opts)
			c.freshness.markFailed(err)
			if err == nil {
				c.watched(begun)
			}
			return w, err
		},
	}
	cache.NewReflectorWithOptions(withoutStreamedList{lw}, example, c, cache.ReflectorOptions{Name: name}).RunWithContext(ctx)
}

// withoutStreamedList keeps the reflector from streaming the first list: the watch that begins so lasts for minutes, and passes in silence
// while nothing changes.
type withoutStreamedList struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is the name by which k8s.io/client-go/util/watchlist asks.
func (withoutStreamedList) IsWatchListSemanticsUnSupported() bool { return true }
