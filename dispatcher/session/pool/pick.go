package pool

import (
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// The ranks of replicas for a ticket, as bits: a lower sum is better.
const (
	rankPauses = 1 << iota // it has refused calls
	rankSilent             // it may be dead
	rankTried              // it has had the ticket
	ranks
)

// pick chooses a member with a free slot for a ticket; nil if there is none. It compares two random members and takes the
// quicker, if nothing speaks against it. Otherwise it compares all: a replica that has not had the ticket comes
// first, then a replica that is not silent, then a replica that does not refuse.
//
// Silence is not held against more than half of the members at a time: a pause of our own looks like silence of all.
func (m *members) pick(t *ticket, now time.Time, random func(n int) int) *Member {
	n := m.len()
	if n <= 2 {
		return m.best(t, now)
	}
	i, j := random(n), random(n-1)
	if j >= i {
		j++
	}
	a, b := m.at(i), m.at(j)
	if a == nil || b == nil { // one has just gone
		return m.best(t, now)
	}
	if b.quicker(a, now) {
		a, b = b, a
	}
	for _, x := range [...]*Member{a, b} {
		if x.fits(t) && x.rank(t, now) == 0 {
			return x
		}
	}
	return m.best(t, now)
}

// best looks at all members.
func (m *members) best(t *ticket, now time.Time) *Member {
	var best [ranks]*Member
	n, silent := m.len(), 0
	for i := range n {
		x := m.at(i)
		if x == nil {
			continue
		}
		rank := x.rank(t, now)
		if rank&rankSilent != 0 {
			silent++
		}
		if x.fits(t) && (best[rank] == nil || x.quicker(best[rank], now)) {
			best[rank] = x
		}
	}
	for rank, x := range best {
		if x != nil && (rank&rankSilent == 0 || 2*silent > n) {
			return x
		}
	}
	return nil
}

// fits reports whether the session takes the ticket now, within the share of its cluster. A call that does not decide, or not yet, has to leave slots for
// those that do.
func (x *Member) fits(t *ticket) bool {
	s, mode := x.replica, t.call.Mode
	return s.FreeSlots() > 0 && s.hasSlotFor(t.cluster()) && (mode == review.Decide || s.HasSpare() && x.agrees(mode))
}

func (x *Member) rank(t *ticket, now time.Time) (rank int) {
	if x.refuses.pauses(now) {
		rank |= rankPauses
	}
	if x.replica.Unresponsive(now) {
		rank |= rankSilent
	}
	if t.tried(&x.replica.Session) {
		rank |= rankTried
	}
	return rank
}

// quicker reports whether the session will be done with one call more sooner than another session. It compares
// the calls that each has times the pace of each; the calls alone while a pace is unknown, or both are much the same.
func (x *Member) quicker(y *Member, now time.Time) bool {
	a, b := x.replica.UsedSlots(), y.replica.UsedSlots()
	p, q := x.pace.estimate(now), y.pace.estimate(now)
	if p == 0 || q == 0 || p < PaceTolerance*q && q < PaceTolerance*p {
		return a < b
	}
	return (a+1)*p < (b+1)*q
}

// mostlyAlive reports whether silence may be held against a member.
func (m *members) mostlyAlive(now time.Time) bool {
	n, silent := m.len(), 0
	for i := range n {
		if x := m.at(i); x != nil && x.replica.Unresponsive(now) {
			silent++
		}
	}
	return 2*silent <= n
}
