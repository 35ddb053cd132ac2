package chain

import (
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// inShadow is the call of a hook in shadow, at its place in the order and on the object as it is there: as if it were to
// decide, but that nothing which is wrong with it refuses the review. It is over for the machine once it was started.
func inShadow(o *Options, h *match.Hook, object Object) *call {
	c := &call{id: -1, hook: h}
	d := o.Match(h, object)
	if d.Err == nil && !d.Match {
		c.state, c.why = skipped, d.Skip
		return c
	}
	c.mode = review.Shadow
	if d.Err != nil {
		c.why = matchError(h, d.Err).GetMessage()
		return c
	}
	status := c.see(o, object, d.As)
	if status == nil {
		status = dryRunConflict(h, o.Request.Admission)
	}
	switch {
	case status != nil:
		c.why = status.GetMessage()
	case o.Request.Admission.GetDryRun() && h.SideEffects == undeclared:
		c.why = reachedByDryRun
	}
	return c
}

// shadowed starts a call in shadow, unless it cannot be made. It may take its whole timeout, also past the end of the
// review, which does not wait for it.
func (c *call) shadowed(object Object, now time.Time) (start []Call) {
	if c.mode != review.Shadow || c.why != "" {
		return nil
	}
	return []Call{{
		ID: c.id, Hook: c.hook, Object: object, View: c.view, Mode: review.Shadow, Deadline: now.Add(c.hook.Timeout),
	}}
}

// shadow gives a hook in shadow its turn. It has none in a second round, which is for those that count.
func (m *Mutate) shadow(h *match.Hook) {
	if m.round == lastRound {
		m.record(&call{id: -1, hook: h, round: m.round, state: skipped, why: "it is in shadow"})
		return
	}
	c := inShadow(m.options, h, m.object)
	m.record(c)
	m.start = append(m.start, c.shadowed(m.object, m.options.clock(m.now))...)
}
