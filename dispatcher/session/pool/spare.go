package pool

import (
	"math/rand/v2"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// HasSpare reports whether some replica speaks, has half of its slots free and agrees to the call, and no call of the hook waits. It
// takes no lock and looks at [SpareLooks] replicas at most, so that a busy hook with many of them may seem busier than it is.
func (p *Pool) HasSpare(mode review.Mode, cluster string) bool {
	return p.spare(cluster, time.Now(), func(x *Member) bool { return !x.agrees(mode) }) != nil
}

// spare is a session with free slots for an optional call; nil when there is none. Calls that decide keep a
// reserve of half of every session's slots, and come first where any of them waits. unfit excludes members.
func (p *Pool) spare(cluster string, now time.Time, unfit func(*Member) bool) *Replica {
	n := p.members.len()
	if n == 0 || p.waits.Load() > 0 {
		return nil
	}
	first := rand.IntN(n)
	for i := range min(SpareLooks, n) {
		x := p.members.at((first + i) % n)
		if x == nil || x.refuses.pauses(now) {
			continue
		}
		s := x.replica
		if s.HasSpare() && s.hasSlotFor(cluster) && !s.Unresponsive(now) && !unfit(x) {
			return s
		}
	}
	return nil
}
