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

// Mutate runs mutating hooks in order on the evolving object: each is matched with, and called with, the object as the hooks
// before it left it (SEMANTICS C3). If a hook changed the object, the hooks with reinvocationPolicy IfNeeded that were called
// before the last change are called once more in a second round (C5 to C8). Initializers may act at the same time (parallel.go).
// Hooks may be called before their turn ([Options].Speculate), but their results are applied in order: the answer is the same as
// without speculation.
type Mutate struct {
	machine
	object  Object
	patches []*call // calls whose patch changed the object, in order
	current *call   // the call whose turn it is: started, or ended and not applied yet; nil between turns
	// together are calls whose turn comes next, and that were started with the call before them.
	together []*call
	next     int // index into Hooks
	round    uint32
	nextID   int       // next Call.ID
	now      time.Time // of the last Next
	// rebased is set once a hook of another version changed the object, and if Options.Object did: no patch of a hook is then valid for
	// the caller.
	rebased bool
	reinvocation
	speculation
	inlineStart [1]Start // memory of start for most reviews
}

var _ Machine = (*Mutate)(nil)

// NewMutate makes the machine of one mutating review.
func NewMutate(o Options) *Mutate {
	m := &Mutate{
		machine: machine{options: o, calls: make([]*call, 0, len(o.Hooks))},
		object:  Object{Raw: o.Request.Admission.GetObject().GetRaw()},
	}
	m.toStart = m.inlineStart[:0]
	if o.Object != nil {
		m.object, m.rebased = Object{Raw: o.Object, Revision: 1}, true
	}
	if o.Refuse != nil {
		m.finish(o.Refuse, nil)
	}
	return m
}

// Next implements [Machine].
func (m *Mutate) Next(now time.Time) ([]Start, []int) {
	m.toStart, m.cancel, m.now = m.toStart[:0], m.cancel[:0], now
	m.expireCalls()
	for !m.done {
		switch {
		case m.current == nil && len(m.together) > 0:
			m.takeTogether()
		case m.current == nil && m.next == len(m.options.Hooks):
			m.endRound()
		case m.current == nil:
			m.nextTurn()
		case m.current.state == started:
			m.speculate()
			return m.toStart, m.cancel
		default:
			m.endTurn(m.current)
		}
	}
	m.abandonTogether()
	m.discardAhead()
	return m.toStart, m.cancel
}

func (m *Mutate) expireCalls() {
	for c := range m.outstanding() {
		if c.expire(&m.options, m.now) {
			m.cancel = append(m.cancel, c.ID)
		}
	}
}

// outstanding yields the call whose turn it is, those that were started with it, and the speculative calls, if they have not ended.
func (m *Mutate) outstanding() iter.Seq[*call] {
	return func(yield func(*call) bool) {
		if m.current != nil && m.current.state == started && !yield(m.current) {
			return
		}
		for _, calls := range [...][]*call{m.together, m.ahead} {
			for _, c := range calls {
				if c != nil && c.state == started && !yield(c) {
					return
				}
			}
		}
	}
}

// nextTurn gives the next hook of the round its turn. It matches the hook, and calls it if it applies, unless speculation has
// done so already.
func (m *Mutate) nextTurn() {
	at := m.next
	m.next++
	h := m.options.Hooks[at]
	if h.Route.Shadow {
		m.takeShadowTurn(h)
		return
	}
	c := m.takeAhead(at)
	if c == nil {
		c = m.matchHook(h)
	}
	m.addCall(c)
	switch {
	case c.refused != nil:
		m.fail(c.refused)
	case c.state != skipped:
		m.startTurn(c, at)
	}
	m.startTogether(h)
}

func (m *Mutate) addCall(c *call) {
	m.assignID(c)
	m.calls = append(m.calls, c)
}

func (m *Mutate) assignID(c *call) {
	if c.ID < 0 {
		c.ID = m.nextID
		m.nextID++
	}
}

// matchHook matches a hook with the current object. The returned call is skipped, refused, or ready to be started.
func (m *Mutate) matchHook(h *match.Hook) *call {
	c := newCall(h, m.round)
	as := c.match(&m.options, m.object)
	if m.round == lastRound && c.applies() && !m.mustReinvoke(h) {
		c.skip(m.skipReason(h))
	}
	c.convert(&m.options, m.object, as)
	if c.applies() {
		c.refused = refuseDryRun(h, m.options.Request.Admission)
	}
	return c
}

// startTurn starts the call of the hook whose turn it is, or continues its speculative call with the time of a call that
// starts now.
func (m *Mutate) startTurn(c *call, at int) {
	m.current = c
	now := m.options.timeNow(m.now)
	limit := m.timeShare(at, now)
	if c.Mode == review.Speculative {
		c.limit, c.turnDeadline = limit, now.Add(limit)
		return
	}
	if c.startWithin(&m.options, now, limit) {
		m.startCall(c)
	}
}

func (m *Mutate) startCall(c *call) {
	m.assignID(c)
	m.toStart = append(m.toStart, c.start(m.object))
}

// Deliver implements [Machine].
func (m *Mutate) Deliver(id int, r review.Result) {
	if m.done {
		return
	}
	for c := range m.outstanding() {
		if c.ID == id {
			c.state, c.result = ended, r
			return
		}
	}
}

// endTurn applies the result of the call whose turn it is, and ends the turn unless callAgain replaced the call.
func (m *Mutate) endTurn(c *call) {
	m.applyResult(c)
	if m.current == c {
		m.hookCalled(c.Hook)
		m.current = nil
	}
}

// applyResult applies the result of an ended call to the review. The failure of a speculative call does not count.
func (m *Mutate) applyResult(c *call) {
	switch effect := c.interpret(); {
	case effect == Denied:
		m.finish(c.denial(), nil)
	case effect != Allowed && c.Mode == review.Speculative:
		m.callAgain(c)
	case effect == FailedClosed:
		m.fail(failedCall(&m.options, c))
	case effect == Allowed:
		if patch := c.result.Verdict.GetPatch(); len(patch) > 0 {
			m.applyPatch(c, patch)
		}
	}
}

// endRound begins the second round if the object was changed, or makes the answer. A reinvocation by the API server has no
// second round.
func (m *Mutate) endRound() {
	again := m.options.Request.Stage != admissionv1.Stage_STAGE_REINVOKE
	if again && m.round < lastRound && len(m.patches) > 0 {
		m.round, m.next = lastRound, 0
		return
	}
	patch, err := m.combinedPatch()
	if err != nil {
		m.fail(internal("the changes of the mutating hooks cannot be expressed as one patch: %v", err))
		return
	}
	m.finish(nil, patch)
	m.answer.Object = m.object.Raw
}

// Outcomes implements [Machine].
func (m *Mutate) Outcomes() Outcomes {
	return Outcomes{counted: m.calls, discarded: slices.Concat(m.discarded, m.calledAhead())}
}

// Wake implements [Machine].
func (m *Mutate) Wake() time.Time {
	if m.matchAheadDue {
		return m.now
	}
	return earliestDeadline(m.outstanding())
}
