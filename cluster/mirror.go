package cluster

import (
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// FreshFor is how long labels are answered from memory after the last sign of life of the watch. An API server sends a
// bookmark about once a minute when nothing else happens.
const FreshFor = 90 * time.Second

// mirror holds the labels of all namespaces of a cluster as a cache.Reflector tells them. The reflector is its only
// writer; reading takes no lock.
type mirror struct {
	labels atomic.Pointer[map[string]map[string]string] // by namespace; nil before the first list; never changed
	alive  atomic.Pointer[time.Time]                    // when the watch said something last
}

var (
	_ cache.ReflectorStore         = (*mirror)(nil)
	_ cache.ReflectorBookmarkStore = (*mirror)(nil)
)

// lookup returns the labels of a namespace; ok is false when the cluster has to be asked.
func (m *mirror) lookup(name string) (labels map[string]string, ok bool) {
	if !m.fresh() {
		return nil, false
	}
	labels, ok = (*m.labels.Load())[name]
	return labels, ok
}

// fresh reports whether the mirror shows the namespaces as they were at most FreshFor ago.
func (m *mirror) fresh() bool {
	alive := m.alive.Load()
	return alive != nil && time.Since(*alive) <= FreshFor
}

// set publishes labels. Everything that the reflector says is a sign of life.
func (m *mirror) set(labels map[string]map[string]string) error {
	now := time.Now()
	m.labels.Store(&labels)
	m.alive.Store(&now)
	return nil
}

// all are the labels; nil before the first list.
func (m *mirror) all() map[string]map[string]string {
	if labels := m.labels.Load(); labels != nil {
		return *labels
	}
	return nil
}

// change publishes a copy of the labels with one change.
func (m *mirror) change(obj any, edit func(labels map[string]map[string]string, ns *metav1.PartialObjectMetadata)) error {
	ns, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("the watch of namespaces told of a %T", obj)
	}
	labels := maps.Clone(m.all())
	if labels == nil {
		labels = map[string]map[string]string{}
	}
	edit(labels, ns)
	return m.set(labels)
}

// Add implements cache.ReflectorStore.
func (m *mirror) Add(obj any) error { return m.Update(obj) }

// Update implements cache.ReflectorStore.
func (m *mirror) Update(obj any) error {
	return m.change(obj, func(labels map[string]map[string]string, ns *metav1.PartialObjectMetadata) {
		labels[ns.Name] = ns.Labels
	})
}

// Delete implements cache.ReflectorStore.
func (m *mirror) Delete(obj any) error {
	return m.change(obj, func(labels map[string]map[string]string, ns *metav1.PartialObjectMetadata) { delete(labels, ns.Name) })
}

// Replace implements cache.ReflectorStore.
func (m *mirror) Replace(objs []any, _ string) error {
	labels := make(map[string]map[string]string, len(objs))
	for _, obj := range objs {
		ns, ok := obj.(*metav1.PartialObjectMetadata)
		if !ok {
			return fmt.Errorf("the list of namespaces holds a %T", obj)
		}
		labels[ns.Name] = ns.Labels
	}
	return m.set(labels)
}

// Bookmark implements cache.ReflectorBookmarkStore.
func (m *mirror) Bookmark(string) error {
	if labels := m.all(); labels != nil {
		return m.set(labels)
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (m *mirror) Resync() error { return nil }
