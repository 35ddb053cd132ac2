package store

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// snapshotRef counts the reviews that a snapshot judges. Generations with the same snapshot share one.
type snapshotRef struct {
	snapshot *match.Snapshot
	reviews  atomic.Int64
	// latest is the last generation published with the snapshot. Only the goroutine of Run writes it.
	latest atomic.Pointer[generation]
}

// retained are the snapshots that may judge reviews still, the oldest first. The last one is in force. Its methods may be
// called concurrently.
type retained struct {
	mu   sync.Mutex
	refs []*snapshotRef // guarded by mu
}

// add appends the snapshot that comes into force, and drops those that judge no review.
func (r *retained) add(ref *snapshotRef) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refs = slices.DeleteFunc(r.refs, func(old *snapshotRef) bool { return old.reviews.Load() == 0 })
	r.refs = append(r.refs, ref)
}

// find returns nil for a snapshot that is not retained.
func (r *retained) find(snapshot *match.Snapshot) *snapshotRef {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ref := range r.refs {
		if ref.snapshot == snapshot {
			return ref
		}
	}
	return nil
}

// oldestUsed is the oldest snapshot that judges a review, else the one in force; nil before the first.
func (r *retained) oldestUsed() *snapshotRef {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, ref := range r.refs {
		if ref.reviews.Load() > 0 || i == len(r.refs)-1 {
			return ref
		}
	}
	return nil
}

// Release ends a review's use of a snapshot. Each Acquire or Fresh that returned one is followed by one Release.
func (s *Store) Release(snapshot *match.Snapshot) {
	if g := s.current.Load(); g.ref != nil && g.ref.snapshot == snapshot {
		g.ref.reviews.Add(-1)
		return
	}
	if ref := s.retained.find(snapshot); ref != nil {
		ref.reviews.Add(-1)
	}
}

// Held is the versions, by source, of the oldest configuration that a review is still judged by; nil before the first.
func (s *Store) Held() map[string]string {
	ref := s.retained.oldestUsed()
	if ref == nil {
		return nil
	}
	return ref.latest.Load().sources
}

// acquireSnapshot counts a review that a generation is to judge. It returns false when another snapshot is in force by now:
// Held must not miss a review that begins at that moment.
func (s *Store) acquireSnapshot(g *generation) bool {
	g.ref.reviews.Add(1)
	if s.current.Load().ref == g.ref {
		return true
	}
	g.ref.reviews.Add(-1)
	return false
}
