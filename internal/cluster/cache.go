package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

// objectCache holds one value for each object of a resource of a cluster, whose memory is booked to the cluster. A cache.Reflector is the only
// writer; readers take no lock, which readers of a cache.Store do. An event costs the same however many objects there are.
type objectCache[O metav1.Object, T any] struct {
	// read returns the value of an object, and the memory that it takes, in bytes.
	read func(O) (value T, bytes int64)
	// reservation opens an empty reservation of the cluster's memory; nil books nothing.
	reservation func() (*memory.Reservation, error)
	// changed is called for each item that comes, changes or goes, before the cache is marked fresh. The zero T stands for no item. It may be nil.
	changed func(before, after T)

	items     atomic.Pointer[sync.Map] // of T, by name; nil before the first list
	freshness freshness

	// Of the writer.
	bytes  map[string]int64    // of the items
	booked *memory.Reservation // for all of them
}

// itemBytes is the memory of each item beside its name and its value.
const itemBytes = 256

func (c *objectCache[O, T]) reserve() (*memory.Reservation, error) {
	if c.reservation == nil {
		return nil, nil //nolint:nilnil // a nil reservation books nothing
	}
	return c.reservation()
}

// entryOf is the kept part of an object.
func (c *objectCache[O, T]) entryOf(o O) entry[T] {
	value, bytes := c.read(o)
	return entry[T]{name: strings.Clone(o.GetName()), value: value, bytes: bytes + int64(len(o.GetName())) + itemBytes}
}

// entry is an object of a list or a watch.
func (c *objectCache[O, T]) entry(obj any) (entry[T], error) {
	switch o := obj.(type) {
	case *entry[T]:
		return *o, nil
	case O:
		return c.entryOf(o), nil
	}
	return entry[T]{}, unexpectedObject(obj)
}

// release gives the memory of the items back, unless another cache has taken them over.
func (c *objectCache[O, T]) release() {
	c.booked.Release()
	c.booked = nil
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
	return itemOf[T](c.items.Load().Load(name))
}

// itemOf is an item of a map; false for none.
func itemOf[T any](value any, found bool) (item T, ok bool) {
	item, ok = value.(T)
	return item, ok && found
}

// seedFrom takes over the items and freshness of another cache of the same resource, whose reflector has ended.
func (c *objectCache[O, T]) seedFrom(other *objectCache[O, T]) {
	if items := other.items.Load(); items != nil {
		for name := range other.bytes {
			item, _ := itemOf[T](items.Load(name))
			c.tell(*new(T), item)
		}
		c.items.Store(items)
		c.freshness.seedFrom(&other.freshness)
		c.bytes, c.booked, other.booked = other.bytes, other.booked, nil
	}
}

func (c *objectCache[O, T]) tell(before, after T) {
	if c.changed != nil {
		c.changed(before, after)
	}
}

// current are the items, for a change.
func (c *objectCache[O, T]) current() *sync.Map {
	if c.items.Load() == nil {
		c.items.Store(&sync.Map{})
		c.bytes = map[string]int64{}
	}
	return c.items.Load()
}

// book books an item and replaces the booking of the last item with its name. It fails without memory, or beside MaxItems others.
func (c *objectCache[O, T]) book(e *entry[T], others int) error {
	more := e.bytes - c.bytes[e.name]
	if others >= answers.MaxItems {
		return fmt.Errorf("more than %d objects", answers.MaxItems)
	}
	if err := c.booked.Extend(more); err != nil {
		return err
	}
	c.booked.Shrink(-more)
	c.bytes[e.name] = e.bytes
	return nil
}

// bookAll books so many bytes for all items, in the place of those before.
func (c *objectCache[O, T]) bookAll(sum int64) (err error) {
	if c.booked == nil {
		if c.booked, err = c.reserve(); err != nil {
			return err
		}
	}
	more := sum - c.booked.Bytes()
	c.booked.Shrink(-more)
	return c.booked.Extend(more)
}

func (c *objectCache[O, T]) forget(name string) {
	before, _ := itemOf[T](c.current().LoadAndDelete(name))
	c.booked.Shrink(c.bytes[name])
	delete(c.bytes, name)
	c.tell(before, *new(T))
}

func unexpectedObject(obj any) error { return fmt.Errorf("the watch told of a %T", obj) }

func (c *objectCache[O, T]) Add(obj any) error { return c.Update(obj) }

func (c *objectCache[O, T]) Update(obj any) error {
	e, err := c.entry(obj)
	if err != nil {
		return err
	}
	items := c.current()
	if err = c.book(&e, len(c.bytes)); err != nil {
		c.forget(e.name) // an old value would be a wrong one
	} else {
		before, _ := itemOf[T](items.Swap(e.name, e.value))
		c.tell(before, e.value)
	}
	c.freshness.markFresh(time.Now())
	return err
}

func (c *objectCache[O, T]) Delete(obj any) error {
	e, err := c.entry(obj)
	if err != nil {
		return err
	}
	c.forget(e.name)
	c.freshness.markFresh(time.Now())
	return nil
}

func (c *objectCache[O, T]) Replace(objs []any, _ string) error {
	items, bytes, sum := &sync.Map{}, make(map[string]int64, len(objs)), int64(0)
	for _, obj := range objs {
		e, err := c.entry(obj)
		if err != nil {
			return err
		}
		sum += e.bytes - bytes[e.name]
		items.Store(e.name, e.value)
		bytes[e.name] = e.bytes
	}
	if err := c.bookAll(sum); err != nil {
		c.freshness.markFailed(err)
		return err
	}
	c.replace(items, bytes)
	c.freshness.markFresh(time.Now())
	return nil
}

// replace takes the items of a list, and tells of those that come, change and go.
func (c *objectCache[O, T]) replace(items *sync.Map, bytes map[string]int64) {
	last := c.current()
	c.items.Store(items)
	for name := range bytes {
		before, _ := itemOf[T](last.Load(name))
		after, _ := itemOf[T](items.Load(name))
		c.tell(before, after)
	}
	for name := range c.bytes {
		if _, stays := bytes[name]; !stays {
			before, _ := itemOf[T](last.Load(name))
			c.tell(before, *new(T))
		}
	}
	c.bytes = bytes
}

func (c *objectCache[O, T]) Bookmark(string) error {
	if c.items.Load() != nil {
		c.freshness.markFresh(time.Now())
	}
	return nil
}

func (c *objectCache[O, T]) Resync() error { return nil }

// watched marks the items fresh at the start of a watch, when the API server sends all missed changes at once. It sends no bookmark on a
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
			if err != nil {
				return nil, err
			}
			return answers.Shortened(w), nil
		},
	}
	cache.NewReflectorWithOptions(withoutStreamedList{lw}, example, c, cache.ReflectorOptions{Name: name}).RunWithContext(ctx)
}

// withoutStreamedList keeps the reflector from streaming the first list: the watch that begins so lasts for minutes, and passes in silence
// while nothing changes.
type withoutStreamedList struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is the name by which k8s.io/client-go/util/watchlist asks.
func (withoutStreamedList) IsWatchListSemanticsUnSupported() bool { return true }
