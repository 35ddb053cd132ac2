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
	// EntryMemory is how long the dispatcher remembers by which entries the reviews of a cluster came: API servers stay with the
	// dispatcher that they are connected to, and one that they have left does not hear of new entries.
	EntryMemory = 10 * time.Minute
	// entryInterval is how often it takes note that the same entries are still there.
	entryInterval = time.Second
)

// EntryDrift is how the entries of a cluster, by which reviews came of late, differ from those that would be made from a
// configuration.
type EntryDrift struct {
	match.Drift

	// Cluster is its name.
	Cluster string
}

// entries remembers the latest plan by which reviews of each cluster came.
type entries struct {
	clusters sync.Map // of *seenEntry, by name
}

// seenEntry is what is known of the entries of one cluster.
type seenEntry struct {
	latest atomic.Pointer[sighting]

	mu      sync.Mutex // for what is looked up beside the road of reviews
	last    *sighting
	against string // the revision of the snapshot that last was compared with
	drift   match.Drift
}

// sighting is an entry, and when a review came by it. It is immutable.
type sighting struct {
	entry match.Entry
	at    time.Time
}

// saw takes note of a review that came by an entry. Those of names that registration does not print are no part of one.
func (s *entries) saw(cluster, text string, now time.Time) {
	e := match.ParseEntry(text)
	if e.Name != match.EntryFailClosed && e.Name != match.EntryFailOpen {
		return
	}
	known, ok := s.clusters.Load(cluster)
	if !ok {
		known, _ = s.clusters.LoadOrStore(strings.Clone(cluster), &seenEntry{})
	}
	of := known.(*seenEntry) //nolint:forcetypeassert,errcheck // nothing else is in there
	if last := of.latest.Load(); last == nil || now.Sub(last.at) >= entryInterval || !last.entry.SamePlan(e) {
		of.latest.Store(&sighting{entry: match.ParseEntry(strings.Clone(text)), at: now})
	}
}

// drifts compares what reviews came by of late with a snapshot, and forgets what is too old. Each plan is compared with each
// snapshot once.
func (s *entries) drifts(snapshot *match.Snapshot, now time.Time) []EntryDrift {
	var all []EntryDrift
	s.clusters.Range(func(key, value any) bool {
		cluster, of := key.(string), value.(*seenEntry) //nolint:forcetypeassert,errcheck // nothing else is in there
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

func (s *seenEntry) compare(cluster string, latest *sighting, with *match.Snapshot) match.Drift {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || s.against != with.Revision() || !s.last.entry.SamePlan(latest.entry) {
		s.last, s.against, s.drift = latest, with.Revision(), with.Drift(cluster, latest.entry)
	}
	return s.drift
}

// EntryDrifts are the clusters whose reviews came by entries within EntryMemory, by name, and how these differ from those that
// would be made from a snapshot; none while there is no snapshot. It may be called from any goroutine.
func (d *Dispatcher) EntryDrifts(s *match.Snapshot) []EntryDrift {
	if s == nil {
		return nil
	}
	return d.entries.drifts(s, time.Now())
}
