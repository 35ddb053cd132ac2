package dispatcher

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

const (
	// EntryMemory is the time for which the dispatcher remembers the entries that the reviews of a cluster came by. API servers
	// stay connected to one dispatcher, so a dispatcher that they have left sees no newer entries.
	EntryMemory = 10 * time.Minute
	// entryInterval is the shortest time between two updates of the same entry use.
	entryInterval = time.Second
)

// EntryDrift is the difference between the entries that reviews of a cluster came by and those that would be generated from
// a configuration.
type EntryDrift struct {
	match.Drift

	// Cluster is its name.
	Cluster string
}

// entries holds the latest plan of each cluster's reviews. Its methods may be called concurrently.
type entries struct {
	clusters sync.Map // of *clusterEntry, by cluster
}

// clusterEntry is the latest entry of one cluster, and its drift from the last snapshot it was compared with.
type clusterEntry struct {
	latest atomic.Pointer[entryUse]

	mu      sync.Mutex // guards the fields below, which reviews do not use
	last    *entryUse
	against string // the revision that last was compared with
	drift   match.Drift
}

// entryUse is an entry and the time of a review that came by it. It is immutable.
type entryUse struct {
	entry match.Entry
	at    time.Time
}

// recordUse records a review that came by an entry. Entries whose names registration does not print are ignored.
func (s *entries) recordUse(cluster string, e match.Entry, now time.Time) {
	if !e.IsGenerated() {
		return
	}
	known, ok := s.clusters.Load(cluster)
	if !ok {
		known, _ = s.clusters.LoadOrStore(strings.Clone(cluster), &clusterEntry{})
	}
	of := known.(*clusterEntry) //nolint:forcetypeassert,errcheck // nothing else is in there
	if last := of.latest.Load(); last == nil || now.Sub(last.at) >= entryInterval || !last.entry.SamePlan(e) {
		of.latest.Store(&entryUse{entry: e.Clone(), at: now})
	}
}

// drifts compares the entries in use with a snapshot, and removes those older than EntryMemory. Each plan is compared with
// each snapshot once.
func (s *entries) drifts(snapshot *match.Snapshot, now time.Time) []EntryDrift {
	var all []EntryDrift
	s.clusters.Range(func(key, value any) bool {
		cluster, of := key.(string), value.(*clusterEntry) //nolint:forcetypeassert,errcheck // nothing else is in there
		latest := of.latest.Load()
		switch {
		case latest == nil: // it is being stored
		case now.Sub(latest.at) > EntryMemory:
			s.clusters.CompareAndDelete(key, value)
		default:
			all = append(all, EntryDrift{Cluster: cluster, Drift: of.compare(cluster, latest, snapshot)})
		}
		return true
	})
	slices.SortFunc(all, func(a, b EntryDrift) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return all
}

// keep removes the entries of all other clusters.
func (s *entries) keep(clusters []string) {
	s.clusters.Range(func(key, _ any) bool {
		if cluster := key.(string); !slices.Contains(clusters, cluster) { //nolint:forcetypeassert,errcheck // nothing else is in there
			s.clusters.Delete(key)
		}
		return true
	})
}

func (s *clusterEntry) compare(cluster string, latest *entryUse, with *match.Snapshot) match.Drift {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || s.against != with.Revision() || !s.last.entry.SamePlan(latest.entry) {
		s.last, s.against, s.drift = latest, with.Revision(), with.Drift(cluster, latest.entry)
	}
	return s.drift
}

// UpdateClusters replaces the clusters that send reviews. The entries of others are forgotten, and their series end. It may be called from
// any goroutine.
func (d *Dispatcher) UpdateClusters(names []string) {
	d.entries.keep(names)
	d.observer.UpdateClusters(names)
}

// Update makes the configuration in force known before a review uses it: it begins the metric series of its hooks, and ends the series of all others.
// Calls of Update are made in order, from any goroutine.
func (d *Dispatcher) Update(s *match.Snapshot) { d.observer.Update(s.Hooks()) }

// EntryDrifts returns, by name, the clusters whose reviews came by an entry within EntryMemory, and how their entries differ
// from those that would be generated from a snapshot; none for a nil snapshot. It may be called from any goroutine.
func (d *Dispatcher) EntryDrifts(s *match.Snapshot) []EntryDrift {
	if s == nil {
		return nil
	}
	return d.entries.drifts(s, time.Now())
}
