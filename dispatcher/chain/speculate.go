package chain

import (
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// MaxDiscardRate is the highest probability at which a speculative call may be discarded. One in twenty keeps the load that
// speculation adds below 5 % on average, for each hook too, and saves nearly as much time as a higher rate would.
const MaxDiscardRate = 0.05

// speculation holds the results of hooks before their turn, while an earlier hook has no verdict. All of it is about the current object. The first
// change of the object discards it, and the hooks are matched and called anew. If nothing changes the object, the verdict of a speculative call
// counts at the turn of its hook.
//
// A failure of a speculative call does not count: the hook is called again at its turn. Its deadline counts from its turn, as without speculation;
// the speculative call has a deadline of its own, counted from its start. So speculation never takes time from a hook or from those after it.
type speculation struct {
	ahead         []*call       // by position in Hooks; nil if not matched
	discarded     []*call       // speculative calls that do not count
	behind        []*match.Hook // argument of Options.Speculate, reused
	matchAheadDue bool          // the next step calls matchAhead
}

func (s *speculation) takeAhead(at int) *call {
	if s.ahead == nil {
		return nil
	}
	c := s.ahead[at]
	s.ahead[at] = nil
	return c
}

// calledAhead returns the speculative calls of hooks whose turn has not come.
func (s *speculation) calledAhead() []*call {
	var calls []*call
	for _, c := range s.ahead {
		if c != nil && c.Mode == review.Speculative {
			calls = append(calls, c)
		}
	}
	return calls
}

// speculate starts calls of hooks before their turn. If a step starts a call in turn, speculate waits for the next step, which is due at once
// ([Mutate.Wake]): matching may take long, and must not delay that call.
func (m *Mutate) speculate() {
	m.matchAheadDue = m.options.Speculate != nil && m.next < len(m.options.Hooks) && len(m.toStart) > 0
	if m.matchAheadDue || m.options.Speculate == nil {
		return
	}
	m.matchAhead()
	now := m.options.timeNow(m.now)
	for at, c := range m.ahead {
		if c == nil || c.state != idle || c.refused != nil {
			continue
		}
		if !c.startWithin(&m.options, now, m.timeShare(at, now)) {
			m.ahead[at] = nil
			continue
		}
		c.Mode = review.Speculative
		m.startCall(c)
	}
}

// matchAhead matches the hooks that may be called before their turn, up to the first hook that ends speculation.
func (m *Mutate) matchAhead() {
	m.behind = append(m.behind[:0], m.current.Hook)
	for _, c := range m.together {
		if m.expect(c.Hook, c) == endsSpeculation {
			return
		}
	}
	for at := m.next; at < len(m.options.Hooks); at++ {
		h := m.options.Hooks[at]
		if !h.Decides() || (m.round == lastRound && !m.mustReinvoke(h)) {
			continue
		}
		if m.expect(h, m.aheadAt(at, h)) == endsSpeculation {
			return
		}
	}
}

// expect predicts the effect of the hook of a call at its turn. It counts the hook among the hooks without a verdict if the effect is not known; c
// may be nil.
func (m *Mutate) expect(h *match.Hook, c *call) expectedEffect {
	effect := c.expectedEffect()
	if effect == unknownEffect {
		m.behind = append(m.behind, h)
	}
	return effect
}

// aheadAt returns the call of the hook at a position; it matches the hook if it may be called before its turn, and returns nil
// if it may not.
func (m *Mutate) aheadAt(at int, h *match.Hook) *call {
	if m.ahead != nil && m.ahead[at] != nil {
		return m.ahead[at]
	}
	if !h.WithoutSideEffects(m.options.Request.Admission) || !m.options.Speculate(h, m.behind) {
		return nil
	}
	if m.ahead == nil {
		m.ahead = make([]*call, len(m.options.Hooks))
	}
	m.ahead[at] = m.matchHook(h)
	return m.ahead[at]
}

// expectedEffect is the effect that a hook will have at its turn, as far as its call shows.
type expectedEffect uint8

const (
	unknownEffect   expectedEffect = iota
	noChange                       // the hook is skipped, or allows without a patch
	endsSpeculation                // it changes the object or ends the review: no call behind it counts
)

// expectedEffect predicts the effect of the hook of a call at its turn; c may be nil.
func (c *call) expectedEffect() expectedEffect {
	switch {
	case c == nil:
		return unknownEffect
	case c.refused != nil:
		return endsSpeculation
	case c.state == skipped:
		return noChange
	case c.state != ended || c.result.Verdict == nil:
		return unknownEffect
	case c.result.Verdict.GetAllowed() && len(c.result.Verdict.GetPatch()) == 0:
		return noChange
	}
	return endsSpeculation
}

// discardAhead discards all calls before their turn: the object has changed, or the review has ended.
func (m *Mutate) discardAhead() {
	for _, c := range m.calledAhead() {
		if c.state == started {
			c.state = abandoned
			m.cancel = append(m.cancel, c.ID)
		}
		m.discarded = append(m.discarded, c)
	}
	clear(m.ahead)
}

// callAgain calls the hook whose turn it is again after its speculative call failed. It has the time that is left of its turn.
func (m *Mutate) callAgain(c *call) {
	m.discarded = append(m.discarded, c)
	m.calls = m.calls[:len(m.calls)-1]
	again := newCall(c.Hook, c.Round)
	again.failOpen = c.failOpen
	again.view, again.input, again.state, again.limit, again.Deadline = c.view, c.input, started, c.limit, c.turnDeadline
	m.current = again
	m.addCall(again)
	if !again.expire(&m.options, m.now) {
		m.startCall(again)
	}
}
