// Package periods keeps records of clusters by period, in bounded memory: each period ends after a retention, and a cluster that floods
// shortens its own past.
//
// Everything here is pure: no goroutine, no clock, no I/O.
package periods

import (
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options configure a Log. All are required.
type Options struct {
	// Length is the length of a period.
	Length time.Duration
	// Retention is how far back records go, unless MaxBytes are reached before.
	Retention time.Duration
	// MaxBytes bounds the records of all clusters, in bytes. Past it the oldest period of the cluster with most of them goes.
	MaxBytes int64
	// Shards divide the records of a cluster, so that updates at the same time do not wait for each other.
	Shards int
}

// Log keeps a record for each cluster, period and shard. Its methods may be called concurrently.
type Log[P any] struct {
	options Options
	begin   func(begun time.Time) *P
	seed    maphash.Seed
	bytes   atomic.Int64

	mu       sync.RWMutex
	clusters map[string]*clusterLog[P]
}

// clusterLog has the records of one cluster.
type clusterLog[P any] struct {
	bytes   atomic.Int64
	shards  []shard[P]
	dropped time.Time // end of the last period that was dropped for memory; guarded by Log.mu
}

// shard has a part of them, the oldest period first.
type shard[P any] struct {
	mu      sync.Mutex
	periods []*period[P]
}

// period has the record of one period.
type period[P any] struct {
	begun  time.Time // a multiple of the length
	bytes  int64
	record *P
}

// New returns a log. begin makes the record of a period that begins then.
func New[P any](o Options, begin func(begun time.Time) *P) *Log[P] {
	return &Log[P]{options: o, begin: begin, seed: maphash.MakeSeed(), clusters: map[string]*clusterLog[P]{}}
}

// Update has add change the record of a cluster and the period of now, in the shard of a key. add returns how many bytes the record grew. It
// runs under the lock of the shard, and calls no method of the log. A clock that went back counts in the latest period.
func (l *Log[P]) Update(now time.Time, cluster, key string, add func(*P) (grown int64)) {
	log := l.logOf(cluster)
	s := &log.shards[maphash.String(l.seed, key)%uint64(len(log.shards))]
	s.mu.Lock()
	grown := s.expire(now, l.options.Retention)
	p := s.periodOf(now.Truncate(l.options.Length), l.begin)
	more := add(p.record)
	p.bytes += more
	s.mu.Unlock()
	if grown += more; grown == 0 {
		return
	}
	log.bytes.Add(grown)
	if l.bytes.Add(grown) > l.options.MaxBytes {
		l.shrink()
	}
}

func (l *Log[P]) logOf(cluster string) *clusterLog[P] {
	l.mu.RLock()
	log := l.clusters[cluster]
	l.mu.RUnlock()
	if log != nil {
		return log
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if log = l.clusters[cluster]; log == nil {
		log = &clusterLog[P]{shards: make([]shard[P], l.options.Shards)}
		l.clusters[strings.Clone(cluster)] = log
	}
	return log
}

// Keep forgets all clusters but these.
func (l *Log[P]) Keep(clusters []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, log := range l.clusters {
		if !slices.Contains(clusters, name) {
			l.bytes.Add(-log.bytes.Load())
			delete(l.clusters, name)
		}
	}
}

// Bytes returns the size of all records, in bytes, by the returns of add.
func (l *Log[P]) Bytes() int64 { return l.bytes.Load() }

// Dropped returns the clusters of which periods were dropped for memory, each with the end of the last of these.
func (l *Log[P]) Dropped() map[string]time.Time {
	l.mu.RLock()
	defer l.mu.RUnlock()
	all := map[string]time.Time{}
	for name, log := range l.clusters {
		if !log.dropped.IsZero() {
			all[name] = log.dropped
		}
	}
	return all
}

// shrink removes the oldest period of the cluster that holds most, until the bound holds.
func (l *Log[P]) shrink() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		var all int64 // counted anew: an update may have ended in a cluster that was forgotten
		var largest *clusterLog[P]
		for _, log := range l.clusters {
			all += log.bytes.Load()
			if largest == nil || log.bytes.Load() > largest.bytes.Load() {
				largest = log
			}
		}
		l.bytes.Store(all)
		if all <= l.options.MaxBytes {
			return
		}
		oldest, freed := largest.dropOldest()
		if freed == 0 {
			return
		}
		largest.dropped = oldest.Add(l.options.Length)
		largest.bytes.Add(-freed)
	}
}

func (c *clusterLog[P]) dropOldest() (oldest time.Time, freed int64) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		if len(s.periods) > 0 && (oldest.IsZero() || s.periods[0].begun.Before(oldest)) {
			oldest = s.periods[0].begun
		}
		s.mu.Unlock()
	}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for len(s.periods) > 0 && !s.periods[0].begun.After(oldest) {
			freed += s.periods[0].bytes
			s.periods = slices.Delete(s.periods, 0, 1)
		}
		s.mu.Unlock()
	}
	return oldest, freed
}

// expire removes periods past the retention and returns how many bytes that grows, which is not more than zero.
func (s *shard[P]) expire(now time.Time, retention time.Duration) (grown int64) {
	for len(s.periods) > 0 && now.Sub(s.periods[0].begun) > retention {
		grown -= s.periods[0].bytes
		s.periods = slices.Delete(s.periods, 0, 1)
	}
	return grown
}

func (s *shard[P]) periodOf(begun time.Time, begin func(time.Time) *P) *period[P] {
	if n := len(s.periods); n > 0 && !s.periods[n-1].begun.Before(begun) {
		return s.periods[n-1]
	}
	p := &period[P]{begun: begun, record: begin(begun)}
	s.periods = append(s.periods, p)
	return p
}

// Query selects records.
type Query struct {
	// Cluster selects; empty selects all.
	Cluster string
	// Since and Until bound the periods by their end and begin; zero bounds nothing.
	Since, Until time.Time
}

// Each calls f with each record that a query selects, by cluster, under the lock of its shard. f calls no method of the log.
func (l *Log[P]) Each(q Query, f func(cluster string, record *P)) {
	l.mu.RLock()
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(l.clusters)), func(name string) bool { return q.Cluster != "" && q.Cluster != name })
	logs := make([]*clusterLog[P], len(names))
	for i, name := range names {
		logs[i] = l.clusters[name]
	}
	l.mu.RUnlock()
	for i, log := range logs {
		for j := range log.shards {
			s := &log.shards[j]
			s.mu.Lock()
			for _, p := range s.periods {
				if (q.Since.IsZero() || p.begun.Add(l.options.Length).After(q.Since)) && (q.Until.IsZero() || p.begun.Before(q.Until)) {
					f(names[i], p.record)
				}
			}
			s.mu.Unlock()
		}
	}
}
