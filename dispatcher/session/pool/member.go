package pool

import (
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Member is a replica as it serves one hook. The owner's lock guards place, joined and open; everything else may be
// read and changed concurrently.
type Member struct {
	replica    *Replica
	speculates bool // the host agrees to calls that may be discarded: set once
	place      int  // among the members of the pool
	joined     bool // it is among them
	open       bool // it counts among those that take new calls
	pace       pace
	refuses    refusals
}

// NewMember makes a replica a member of a pool, which it joins with [Replica.Join]. The host agrees or not to calls that may be discarded.
func NewMember(s *Replica, speculates bool) *Member {
	return &Member{replica: s, speculates: speculates}
}

// agrees reports whether the host takes calls that are made for such a reason.
func (x *Member) agrees(mode review.Mode) bool { return x.speculates || mode != review.Speculative }

// Declines reports whether the route of the hook asks for calls that the host does not agree to.
func (x *Member) Declines(h *match.Hook) bool {
	return x != nil && !x.speculates && h.Route.Speculate
}

// joins reports whether a ticket may go along with another ticket of its call set, which goes to the session.
func (x *Member) joins(t *ticket) bool { return x != nil && x.agrees(t.call.Mode) }

// learn records how a call ended, at the time of the last frame of the host.
func (x *Member) learn(r review.Result, now time.Time) {
	switch {
	case r.Failure == nil:
		x.pace.record(r.Timing.Wire+r.Timing.Host, now)
		x.refuses.started()
	case r.Failure.Kind == review.FailureRefused:
		x.refuses.refused(now)
	case !r.Failure.NotStarted:
		x.refuses.started()
	}
}

// members are the sessions of a pool. They change under the owner's lock, one at a time and at a cost that does not
// depend on how many there are, and are read without a lock: who looks while a session goes may see one twice, and
// another one not at all.
type members struct {
	slots atomic.Pointer[[]atomic.Pointer[Member]]
	n     atomic.Int64
}

func (m *members) len() int {
	if m.slots.Load() == nil {
		return 0
	}
	return int(m.n.Load())
}

// at returns a member; nil if it has just been removed.
func (m *members) at(i int) *Member {
	if slots := *m.slots.Load(); i < len(slots) {
		return slots[i].Load()
	}
	return nil
}

func (m *members) insert(x *Member) {
	n := m.len()
	if slots := m.slots.Load(); slots == nil || n == len(*slots) {
		m.resize(max(1, 2*n))
	}
	x.place = n
	(*m.slots.Load())[n].Store(x)
	m.n.Store(int64(n + 1))
}

// delete removes a member. The last one takes its place.
func (m *members) delete(x *Member) {
	slots, last := *m.slots.Load(), m.len()-1
	if moved := slots[last].Load(); moved != x {
		moved.place = x.place
		slots[x.place].Store(moved)
	}
	slots[last].Store(nil)
	m.n.Store(int64(last))
	if 4*last < len(slots) {
		m.resize(2 * last)
	}
}

func (m *members) some(such func(*Replica) bool) bool {
	for i := range m.len() {
		if x := m.at(i); x != nil && such(x.replica) {
			return true
		}
	}
	return false
}

// resize gives the members another number of slots, which is enough for them.
func (m *members) resize(to int) {
	slots := make([]atomic.Pointer[Member], to)
	for i := range m.len() {
		slots[i].Store(m.at(i))
	}
	m.slots.Store(&slots)
}

// pace is how long a session takes for a call of a hook: an average in which the latest calls weigh most. Without calls
// it halves every [PaceHalfLife], so that a replica that was slow is tried again. The zero pace is unknown. A write that
// another one overtakes is lost, which does not matter to an average.
type pace struct {
	value atomic.Int64 // ns
	since atomic.Int64 // unix ns
}

// estimate is how long a call takes, in ns; 0 when that is not known.
func (p *pace) estimate(now time.Time) int64 {
	value := p.value.Load()
	if value == 0 {
		return 0
	}
	age := time.Duration(now.UnixNano() - p.since.Load())
	return value >> min(62, max(0, age/PaceHalfLife))
}

func (p *pace) record(d time.Duration, now time.Time) {
	value := max(1, int64(d))
	if before := p.estimate(now); before > 0 {
		value = max(1, before+(value-before)/paceWeight)
	}
	p.value.Store(value)
	p.since.Store(now.UnixNano())
}

// recordOvertaken takes note of a call that was given up after a while because another replica was quicker. Its full time is
// unknown: it counts as several times as long.
func (p *pace) recordOvertaken(after time.Duration, now time.Time) {
	if d := overtakenFactor * after; int64(d) > p.estimate(now) {
		p.record(d, now)
	}
}

// refusals say when a session that refused calls of a hook is asked again: after [RefusalPause], and after twice as long
// for every refusal in a row, up to [MaxRefusalPause]. Who refuses everything would else be the least loaded one forever.
type refusals struct {
	row   atomic.Int32
	until atomic.Int64 // unix ns
}

func (r *refusals) refused(now time.Time) {
	pause := min(MaxRefusalPause, RefusalPause<<min(16, r.row.Add(1)-1))
	r.until.Store(now.Add(pause).UnixNano())
}

func (r *refusals) started() {
	if r.row.Load() != 0 {
		r.row.Store(0)
		r.until.Store(0)
	}
}

// pauses reports whether others are asked first. A clock that was set back makes no longer pause of it.
func (r *refusals) pauses(now time.Time) bool {
	until := r.until.Load()
	left := time.Duration(until - now.UnixNano())
	return until != 0 && left > 0 && left <= MaxRefusalPause
}
