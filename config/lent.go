package config

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// lent is a snapshot, and the reviews that it judges.
type lent struct {
	snapshot *match.Snapshot
	reviews  atomic.Int64
	// last is what was settled when the snapshot was in force for the last time. Only the goroutine of Run writes it, while
	// it is.
	last atomic.Pointer[settled]
}

// shelf is what snapshots were in force and may judge reviews still, the oldest first. The one in force is the last.
type shelf struct {
	mu   sync.Mutex
	lent []*lent
}

// put adds the snapshot that comes into force, and drops those that judge nothing any more.
func (s *shelf) put(l *lent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lent = slices.DeleteFunc(s.lent, func(old *lent) bool { return old.reviews.Load() == 0 })
	s.lent = append(s.lent, l)
}

// find is the snapshot's.
func (s *shelf) find(snapshot *match.Snapshot) *lent {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lent {
		if l.snapshot == snapshot {
			return l
		}
	}
	return nil
}

// oldest is the oldest snapshot that judges a review, else the one in force; nil before the first.
func (s *shelf) oldest() *lent {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range s.lent {
		if l.reviews.Load() > 0 || i == len(s.lent)-1 {
			return l
		}
	}
	return nil
}

// Release says that a review is over that the snapshot of a Fresh has judged. Each Fresh that returned one is followed by
// one Release.
func (s *Store) Release(snapshot *match.Snapshot) {
	if e := s.current.Load(); e.lent != nil && e.lent.snapshot == snapshot {
		e.lent.reviews.Add(-1)
		return
	}
	if l := s.shelf.find(snapshot); l != nil {
		l.reviews.Add(-1)
	}
}

// Held is what each source calls the oldest configuration that a review is still judged by; nil before the first.
func (s *Store) Held() map[string]string {
	l := s.shelf.oldest()
	if l == nil {
		return nil
	}
	return l.last.Load().Sources
}

// lend counts a review that an edition is to judge. It returns false when the edition is not in force any more: whoever
// asks for the oldest in use must not miss one that begins at that moment.
func (s *Store) lend(e *edition) bool {
	e.lent.reviews.Add(1)
	if s.current.Load().lent == e.lent {
		return true
	}
	e.lent.reviews.Add(-1)
	return false
}
