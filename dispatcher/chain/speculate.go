package chain

import (
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// speculation keeps what hooks were asked ahead of their turn, while one before them has not answered. All of it is about
// the object as it is now: at the first change it is forgotten, with matches, refusals, denials, failures and warnings, and
// the hooks behind the change are matched and asked anew. What a hook said about the very object that it would have been
// asked about in its turn counts then, as if it had answered at once.
//
// A failure never counts: when the turn of the hook comes, or has come, it is asked again. Its time is that of a hook that
// was never asked ahead, from its turn on; a call ahead of the turn has a time of its own, as if the turn had come
// when it began. So a hook that answers in time when it is asked in its turn does so here, and those behind it have what
// they would have.
type speculation struct {
	ahead  []*call // by position in Hooks; nil is not asked ahead
	wasted []*call // asked ahead, and does not count
	behind []*match.Hook
	due    bool // hooks may be asked ahead in the next step
}

// takeAhead takes what was asked ahead at a position; nil if nothing was.
func (s *speculation) takeAhead(at int) *call {
	if s.ahead == nil {
		return nil
	}
	c := s.ahead[at]
	s.ahead[at] = nil
	return c
}

// asked are the calls that were made ahead of a turn that has not come.
func (s *speculation) asked() []*call {
	var asked []*call
	for _, c := range s.ahead {
		if c != nil && c.mode == review.Speculative {
			asked = append(asked, c)
		}
	}
	return asked
}

// lookAhead asks hooks ahead of their turn. The one in turn goes first: what matching others takes, which may be a
// question to the cluster, must not delay it, and cannot change what it does. So that is left to the next step, which is
// due at once.
func (m *Mutate) lookAhead() {
	m.due = m.options.Speculate != nil && m.next < len(m.options.Hooks) && len(m.start) > 0
	if m.due || m.options.Speculate == nil {
		return
	}
	m.matchAhead()
	now := m.options.clock(m.now)
	for at, c := range m.ahead {
		if c == nil || c.state != idle || c.refused != nil {
			continue
		}
		if !c.begin(m.options, now, m.share(at, now)) {
			m.ahead[at] = nil
			continue
		}
		c.mode = review.Speculative
		m.ask(c)
	}
}

// matchAhead matches the hooks that may be asked ahead, up to one behind which nothing can count.
func (m *Mutate) matchAhead() {
	m.behind = append(m.behind[:0], m.current.hook)
	for at := m.next; at < len(m.options.Hooks); at++ {
		h := m.options.Hooks[at]
		if !h.Decides() || (m.round == lastRound && !m.wants(h)) {
			continue
		}
		switch m.aheadAt(at, h).prospect() {
		case leaves:
		case unsure:
			m.behind = append(m.behind, h)
		case changes:
			return
		}
	}
}

// aheadAt matches a hook if it may be asked ahead, and returns what is known of its call; nil is nothing.
func (m *Mutate) aheadAt(at int, h *match.Hook) *call {
	if m.ahead != nil && m.ahead[at] != nil {
		return m.ahead[at]
	}
	if !harmless(h, m.options.Request.Admission) || !m.options.Speculate(h, m.behind) {
		return nil
	}
	if m.ahead == nil {
		m.ahead = make([]*call, len(m.options.Hooks))
	}
	m.ahead[at] = m.consider(h)
	return m.ahead[at]
}

// prospect is what a hook will do to the object when its turn comes.
type prospect uint8

const (
	unsure  prospect = iota
	leaves           // nothing
	changes          // a change, or the end of the review: nothing behind it can count
)

// prospect is what the call of a hook says of its turn.
func (c *call) prospect() prospect {
	switch {
	case c == nil:
		return unsure
	case c.refused != nil:
		return changes
	case c.state == skipped:
		return leaves
	case c.state != ended || c.result.Verdict == nil:
		return unsure
	case c.result.Verdict.GetAllowed() && len(c.result.Verdict.GetPatch()) == 0:
		return leaves
	}
	return changes
}

// forget gives up what was asked ahead: the object that it was about is no more, or the review is over.
func (m *Mutate) forget() {
	for _, c := range m.asked() {
		if c.state == started {
			c.state = abandoned
			m.cancel = append(m.cancel, Cancel{c.id, review.FailureCancelled})
		}
		m.wasted = append(m.wasted, c)
	}
	clear(m.ahead)
}

// askAgain asks the hook in turn again that has failed when it was asked ahead. It has the time that is left of its turn.
func (m *Mutate) askAgain(c *call) {
	m.wasted = append(m.wasted, c)
	m.calls = m.calls[:len(m.calls)-1]
	m.current = &call{
		id: -1, hook: c.hook, round: c.round, view: c.view, seen: c.seen, state: started, limit: c.limit, deadline: c.until,
	}
	m.record(m.current)
	if !m.current.expire(m.now) {
		m.ask(m.current)
	}
}

// harmless reports whether a hook has no side effects for a request.
func harmless(h *match.Hook, r *admissionv1.AdmissionRequest) bool {
	return h.SideEffects == admissionregistrationv1.SideEffectClassNone ||
		(h.SideEffects == admissionregistrationv1.SideEffectClassNoneOnDryRun && r.GetDryRun())
}
