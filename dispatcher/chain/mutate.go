package chain

import (
	"iter"
	"slices"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// lastRound is the number of the reinvocation round; there is at most one (SEMANTICS C5).
const lastRound = 1

// Mutate runs mutating hooks in order on the evolving object: each is matched against, and called with, the object as
// the ones before it left it (SEMANTICS C3). If anything changed, the hooks with reinvocationPolicy IfNeeded whose
// verdict is older than a change are asked once more in a second round (C5 to C8). Hooks may be asked ahead of their turn
// ([Options].Speculate), but what they say is heard in order: the answer is the one that the hooks would have led to, had
// they been asked one after the other.
type Mutate struct {
	folder
	object  Object
	calls   []*call // in order: those that count
	patches []*call // calls whose patch changed the object, in order
	current *call   // whose turn it is: started, or ended and not yet applied
	next    int     // index into Hooks
	round   uint32
	ids     int       // how many were given out
	now     time.Time // of the last Next
	// returned is whether the object has been in another version since, and came back with what a hook made of it.
	returned bool
	reinvocation
	speculation
	start  []Call
	cancel []Cancel
	room   [1]Call // for most
}

var _ Machine = (*Mutate)(nil)

// NewMutate makes the machine of one mutating review.
func NewMutate(o Options) *Mutate {
	m := &Mutate{
		folder: folder{options: &o},
		object: Object{Raw: o.Request.Admission.GetObject().GetRaw()},
		calls:  make([]*call, 0, len(o.Hooks)),
	}
	m.start = m.room[:0]
	return m
}

// Next implements [Machine].
func (m *Mutate) Next(now time.Time) ([]Call, []Cancel) {
	m.start, m.cancel, m.now = m.start[:0], m.cancel[:0], now
	m.expire()
	for !m.done {
		switch {
		case m.current == nil && m.next == len(m.options.Hooks):
			m.endRound()
		case m.current == nil:
			m.advance()
		case m.current.state == started:
			m.lookAhead()
			return m.start, m.cancel
		default:
			m.conclude(m.current)
		}
	}
	m.forget()
	return m.start, m.cancel
}

// expire ends the calls whose deadlines have passed.
func (m *Mutate) expire() {
	for c := range m.outstanding() {
		if c.expire(m.now) {
			m.cancel = append(m.cancel, Cancel{c.id, review.FailureTimeout})
		}
	}
}

// outstanding are the calls that have not ended: that of the hook whose turn it is, and those ahead of theirs.
func (m *Mutate) outstanding() iter.Seq[*call] {
	return func(yield func(*call) bool) {
		if m.current != nil && m.current.state == started && !yield(m.current) {
			return
		}
		for _, c := range m.ahead {
			if c != nil && c.state == started && !yield(c) {
				return
			}
		}
	}
}

// advance gives the next hook of the round its turn: it is matched, and called if it applies, unless that was done already.
func (m *Mutate) advance() {
	at := m.next
	m.next++
	h := m.options.Hooks[at]
	if h.Route.Shadow {
		m.shadow(h)
		return
	}
	c := m.takeAhead(at)
	if c == nil {
		c = m.consider(h)
	}
	m.record(c)
	switch {
	case c.refused != nil:
		m.fail(m.calls, c.refused)
	case c.state != skipped:
		m.turn(c, at)
	}
}

// record takes a call among those that count.
func (m *Mutate) record(c *call) {
	m.number(c)
	m.calls = append(m.calls, c)
}

// number gives a call its id, unless it has one.
func (m *Mutate) number(c *call) {
	if c.id < 0 {
		c.id = m.ids
		m.ids++
	}
}

// consider matches a hook with the object as it is now. The call is then skipped, refused, or ready to begin.
func (m *Mutate) consider(h *match.Hook) *call {
	c := &call{id: -1, hook: h, round: m.round}
	d := m.options.Match(h, m.object)
	switch {
	case d.Err != nil:
		c.refuse(matchError(h, d.Err))
	case !d.Match:
		c.state, c.why = skipped, d.Skip
	case m.round == lastRound && !m.wants(h):
		c.state, c.why = skipped, m.unwanted(h)
	default:
		status := c.see(m.options, m.object, d.As)
		if status == nil {
			status = dryRunConflict(h, m.options.Request.Admission)
		}
		c.refuse(status)
	}
	return c
}

// turn calls the hook of a call, or goes on with what was asked ahead: from now on the time of the hook runs, as if it had
// only just been asked.
func (m *Mutate) turn(c *call, at int) {
	m.current = c
	now := m.options.clock(m.now)
	limit := m.share(at, now)
	if c.mode == review.Speculative {
		c.limit, c.until = limit, now.Add(limit)
		return
	}
	if c.begin(m.options, now, limit) {
		m.ask(c)
	}
}

// ask has the shell start a call.
func (m *Mutate) ask(c *call) {
	m.number(c)
	m.start = append(m.start, Call{
		ID: c.id, Hook: c.hook, Object: m.object, View: c.view, Round: c.round, Mode: c.mode, Deadline: c.deadline,
	})
}

// share is the time that a hook may take: its timeout, or the part that it has of the time left. While others may come
// after it, a hook that hangs may not use up theirs: it gets half of what is left, or more if its timeout is a greater part
// of all that are still to run. Together they would otherwise be a request that fails although each is fail-open
// (docs/deviations.md, D9).
func (m *Mutate) share(at int, now time.Time) time.Duration {
	h, left := m.options.Hooks[at], m.options.Deadline.Sub(now)
	all := h.Timeout
	for _, later := range m.options.Hooks[at+1:] {
		if later.Decides() && (m.round < lastRound || m.wants(later)) {
			all += later.Timeout
		}
	}
	if all > left && all > h.Timeout {
		left = max(left/2, time.Duration(float64(left)*(float64(h.Timeout)/float64(all))))
	}
	return min(h.Timeout, left)
}

// Deliver implements [Machine].
func (m *Mutate) Deliver(id int, r review.Result) {
	if m.done {
		return
	}
	for c := range m.outstanding() {
		if c.id == id {
			c.state, c.result = ended, r
			return
		}
	}
}

// conclude ends the turn of a call that has ended, unless its hook has to be asked once more.
func (m *Mutate) conclude(c *call) {
	m.apply(c)
	if m.current == c {
		m.invoked(c.hook)
		m.current = nil
	}
}

// apply lets an ended call have its effect. That a hook failed which was asked ahead of its turn has none.
func (m *Mutate) apply(c *call) {
	switch means := c.interpret(); {
	case means == denies:
		m.deny(m.calls, denial(c.hook, c.result.Verdict.GetStatus()))
	case means != allows && c.mode == review.Speculative:
		m.askAgain(c)
	case means == fails:
		m.fail(m.calls, failedCall(c))
	case means == allows:
		if patch := c.result.Verdict.GetPatch(); len(patch) > 0 {
			m.patch(c, patch)
		}
	}
}

// endRound goes to the second round if there is something to ask again, or makes the answer. A reinvocation by the API
// server is a second round already.
func (m *Mutate) endRound() {
	again := m.options.Request.Stage != admissionv1.Stage_STAGE_REINVOKE
	if again && m.round < lastRound && len(m.patches) > 0 {
		m.round, m.next = lastRound, 0
		return
	}
	patch, err := m.patchOfAll()
	if err != nil {
		m.fail(m.calls, internal("the changes of the mutating hooks cannot be expressed as one patch: %v", err))
		return
	}
	m.allow(m.calls, patch)
	m.answer.Object = m.object.Raw
}

// Outcomes implements [Machine].
func (m *Mutate) Outcomes() iter.Seq[Outcome] {
	return func(yield func(Outcome) bool) {
		for o := range outcomesOf(m.calls) {
			if !yield(o) {
				return
			}
		}
		for o := range outcomesOf(slices.Concat(m.wasted, m.asked())) {
			o.Effect, o.Reason, o.Code = Discarded, "", 0
			if !yield(o) {
				return
			}
		}
	}
}

// Wake implements [Machine].
func (m *Mutate) Wake() time.Time {
	if m.due {
		return m.now
	}
	var wake time.Time
	for c := range m.outstanding() {
		if wake.IsZero() || c.deadline.Before(wake) {
			wake = c.deadline
		}
	}
	return wake
}
