// Package weakmap keeps values that are costly to make as long as the program uses them, so that each is made once.
package weakmap

import (
	"runtime"
	"sync"
	"weak"
)

// Map has values by name, each as long as another part of the program holds it. The zero value is empty and ready. It may be used concurrently.
type Map[V any] struct {
	mu    sync.Mutex
	known map[string]weak.Pointer[V]
}

// Get returns the value of a name; nil if there is none, or its last holder has dropped it.
func (m *Map[V]) Get(name string) *V {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known[name].Value()
}

// Put sets the value of a name, which must not be nil.
func (m *Map[V]) Put(name string, v *V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[string]weak.Pointer[V]{}
	}
	m.known[name] = weak.Make(v)
	runtime.AddCleanup(v, m.forget, name)
}

// Len is how many names are known.
func (m *Map[V]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.known)
}

// forget forgets a name, unless it has another value meanwhile.
func (m *Map[V]) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known[name].Value() == nil {
		delete(m.known, name)
	}
}
