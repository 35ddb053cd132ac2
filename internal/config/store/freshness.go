package store

import (
	"fmt"
	"slices"
	"time"
)

// A generation is fresh while its oldest listing began at most the maximum age ago. The maximum age is set by the cluster
// whose review asks, else by Options.MaxAge. Past it the generation is stale: reviews wait (wait_queue.go), unless a Permit
// holds. docs/design/0016-freshness.md has the reasons.

// MaxCompileTime is how long reviews go on being judged by the generation in force after a listing has shown a newer one, at
// most, while that is decoded and compiled. Past it the age of the one in force counts on, and reviews wait when it has
// reached its maximum.
const MaxCompileTime = 30 * time.Second

// freshness records until when a generation is known to be the configuration.
type freshness struct {
	// seen are the revisions of the listings that make the generation, by source.
	seen []string
	// begun is the begin of the oldest listing by which the generation may judge: the last listings that showed it, or that
	// showed a newer generation within MaxCompileTime.
	begun time.Time
	// superseded is when the listing began that was the first to show a newer one; zero while none has.
	superseded time.Time
}

// update takes a complete set of listings: their revisions, when the oldest of them began, and when the latest. fresh says
// whether the generation was fresh before it.
//
// A stale generation does not become fresh by a listing that shows another one: a client that waits for the newer one may have
// been informed that this dispatcher is gone.
func (f *freshness) update(seen []string, oldest, latest time.Time, fresh bool) {
	switch {
	case slices.Equal(seen, f.seen):
		f.begun, f.superseded = oldest, time.Time{}
		return
	case f.superseded.IsZero():
		f.superseded = latest
	}
	if last := f.superseded.Add(MaxCompileTime); oldest.After(last) {
		oldest = last
	}
	if fresh && oldest.After(f.begun) {
		f.begun = oldest
	}
}

// age is how long ago the oldest listing of a generation began.
func (s *Store) age(g *generation) time.Duration { return s.opts.clock(g.begun).longer() }

// maxAge is the maximum age of a generation for reviews of a cluster.
func (s *Store) maxAge(g *generation, cluster string) time.Duration {
	age, ok := g.ages.byCluster[cluster]
	if !ok {
		return s.opts.MaxAge
	}
	return s.covered(age)
}

// longestMaxAge is the longest maximum age that a generation has for any cluster.
func (s *Store) longestMaxAge(g *generation) time.Duration {
	return max(s.opts.MaxAge, s.covered(g.ages.longest))
}

// covered limits a cluster's maximum age to the coverage of the lease (Options.LeaseCoverage), and never to less than
// Options.MaxAge.
func (s *Store) covered(age time.Duration) time.Duration {
	if s.opts.LeaseCoverage == nil || age <= s.opts.MaxAge {
		return age
	}
	return min(age, max(s.opts.MaxAge, s.opts.LeaseCoverage()))
}

// mayJudge reports whether a review of a cluster may begin with a generation now. stale is the text for the audit log when a
// Permit alone allows it.
func (s *Store) mayJudge(g *generation, cluster string) (stale string, ok bool) {
	age := s.age(g)
	if age <= s.maxAge(g, cluster) {
		return "", true
	}
	if p := s.permitFor(g); p != nil {
		return p.audit(age), true
	}
	return "", false
}

// freshForAny reports whether a generation is fresh for some cluster.
func (s *Store) freshForAny(g *generation) bool { return s.age(g) <= s.longestMaxAge(g) }

// mayJudgeAny reports whether reviews of some cluster may begin with a generation now.
func (s *Store) mayJudgeAny(g *generation) bool { return s.freshForAny(g) || s.permitFor(g) != nil }

// permitFor is the Permit that lets a stale generation judge; nil when there is none.
func (s *Store) permitFor(g *generation) *Permit {
	if g.ref == nil {
		return nil
	}
	return s.Permitted()
}

// staleError says why a generation is stale.
func (s *Store) staleError(g *generation) error {
	why := s.problems.failure()
	if g.begun.IsZero() {
		return fmt.Errorf("%w: it has not been read yet%s", ErrStale, why)
	}
	if !g.superseded.IsZero() {
		why += fmt.Sprintf("; a newer configuration was listed %s ago and is not compiled yet", Since(g.superseded).Round(time.Millisecond))
	}
	return fmt.Errorf("%w: the last complete listing began %s ago%s", ErrStale, s.age(g).Round(time.Millisecond), why)
}

// Ready is nil while reviews of some cluster are judged, and else says why none are: with clusters that are judged by an
// older configuration than others, a process that turned unready for the others would not be asked about these either.
func (s *Store) Ready() error {
	if g := s.current.Load(); !s.mayJudgeAny(g) {
		return s.staleError(g)
	}
	return nil
}

// Notes are warnings about a store that is ready.
func (s *Store) Notes() []string {
	var notes []string
	g := s.current.Load()
	if p := s.Permitted(); p != nil {
		notes = append(notes, fmt.Sprintf("a stale configuration may judge until %s, by permit of %s: %s",
			p.Until.UTC().Format(time.RFC3339), p.Actor, p.Reason))
	}
	if s.age(g) > s.opts.MaxAge {
		notes = append(notes, s.staleError(g).Error())
	}
	return notes
}
