// Package series bounds the metrics of objects that come and go with the configuration, such as hooks and clusters. An object in force
// has series of its own, up to a number of objects; its series end when it leaves. All other observations go to the value [Other].
package series

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Other is the value of a label for all objects without series of their own.
const Other = "(other)"

// lateObservations is how long after an object left its series are removed again: an observation may have begun before.
const lateObservations = time.Minute

// Vec is a family of metrics. The vectors of client_golang implement it.
type Vec interface {
	prometheus.Collector
	// DeletePartialMatch removes the metrics that have these labels.
	DeletePartialMatch(labels prometheus.Labels) int
}

// Options configure a Set.
type Options[K comparable] struct {
	// Max is how many objects have series of their own.
	Max int
	// Name is the name of the gauge of objects in force without series of their own, and Help its text; empty for no
	// gauge.
	Name, Help string
	// Labels are those by which the series of an object are found.
	Labels func(K) prometheus.Labels
	// Begin, if set, makes the series of an object that has come into force.
	Begin func(K)
	// Vecs are the families. The Set collects them.
	Vecs []Vec
}

// Set has the objects with series of their own. It is a [prometheus.Collector] of all its families. Its methods may be called
// concurrently.
type Set[K comparable] struct {
	o    Options[K]
	desc *prometheus.Desc
	own  atomic.Pointer[map[K]struct{}] // nil before the first Update

	mu   sync.Mutex
	cut  int             // objects in force without series of their own
	left map[K]time.Time // when an object left
}

// New returns a set. Until the first Update each object has series of its own.
func New[K comparable](o Options[K]) *Set[K] {
	return &Set[K]{o: o, left: map[K]time.Time{}, desc: prometheus.NewDesc(o.Name, o.Help, nil, nil)}
}

// Own reports whether an object has series of its own. It is cheap.
func (s *Set[K]) Own(k K) bool {
	own := s.own.Load()
	if own == nil {
		return true
	}
	_, ok := (*own)[k]
	return ok
}

// Update makes known the objects that are in force. Those that had series of their own before keep them; of the others the first do.
func (s *Set[K]) Update(inForce []K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := map[K]struct{}{}
	if own := s.own.Load(); own != nil {
		before = *own
	}
	all, own := map[K]struct{}{}, map[K]struct{}{}
	for _, k := range inForce {
		all[k] = struct{}{}
		if _, ok := before[k]; ok {
			own[k] = struct{}{}
		}
	}
	var begun []K
	for _, k := range inForce {
		if _, ok := own[k]; !ok && len(own) < s.o.Max {
			own[k] = struct{}{}
			begun = append(begun, k)
		}
	}
	s.cut = len(all) - len(own)
	for k := range before {
		if _, ok := own[k]; !ok {
			s.left[k] = time.Now()
		}
	}
	for _, k := range begun {
		delete(s.left, k)
	}
	s.own.Store(&own)
	if s.o.Begin != nil {
		for _, k := range begun {
			s.o.Begin(k)
		}
	}
}

// Describe implements [prometheus.Collector].
func (s *Set[K]) Describe(out chan<- *prometheus.Desc) {
	if s.o.Name != "" {
		out <- s.desc
	}
	for _, v := range s.o.Vecs {
		v.Describe(out)
	}
}

// Collect implements [prometheus.Collector].
func (s *Set[K]) Collect(out chan<- prometheus.Metric) {
	if cut := s.removeLeft(); s.o.Name != "" {
		out <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, float64(cut))
	}
	for _, v := range s.o.Vecs {
		v.Collect(out)
	}
}

// removeLeft removes the series of objects that have left. It returns how many objects have no series of their own.
func (s *Set[K]) removeLeft() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, at := range s.left {
		for _, v := range s.o.Vecs {
			v.DeletePartialMatch(s.o.Labels(k))
		}
		if time.Since(at) > lateObservations {
			delete(s.left, k)
		}
	}
	return s.cut
}
