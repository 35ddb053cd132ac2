package chain

import (
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// shadows are the hooks in shadow whose place in the order has come, and that were not matched yet: what matching takes,
// which may be a question to the cluster, must not keep those waiting that decide. So these are called first, and the
// shadows in the next step, or when there is nothing else left to do.
type shadows []shaded

// shaded is a hook in shadow at its place.
type shaded struct {
	call   *call
	object Object // as it is there
}

// place takes note of a hook in shadow.
func (s *shadows) place(c *call, object Object) { *s = append(*s, shaded{c, object}) }

// cast matches the hooks in shadow and returns their calls. They are over for the machine then. Each may take its whole
// timeout, also past the end of the review, which does not wait for it.
func (s *shadows) cast(o *Options, now time.Time) []Call {
	var start []Call
	for _, at := range *s {
		c := at.call
		if c.overshadow(o, at.object); c.mode != review.Shadow || c.why != "" {
			continue
		}
		start = append(start, Call{
			ID: c.id, Hook: c.hook, Object: at.object, View: c.view, Mode: review.Shadow,
			Deadline: o.matched(now).Add(c.hook.Timeout),
		})
	}
	*s = nil
	return start
}

// overshadow matches a hook in shadow as if it were to decide, but that nothing which is wrong with it refuses the review.
func (c *call) overshadow(o *Options, object Object) {
	d := o.Match(c.hook, object)
	if d.Err == nil && !d.Match {
		c.state, c.why = skipped, d.Skip
		return
	}
	c.mode = review.Shadow
	if d.Err != nil {
		c.why = matchError(c.hook, d.Err).GetMessage()
		return
	}
	status := c.see(o, object, d.As)
	if status == nil {
		status = dryRunConflict(c.hook, o.Request.Admission)
	}
	switch {
	case status != nil:
		c.why = status.GetMessage()
	case o.Request.Admission.GetDryRun() && c.hook.SideEffects == undeclared:
		c.why = reachedByDryRun
	}
}

// shadow gives a hook in shadow its turn. It has none in a second round, which is for those that count.
func (m *Mutate) shadow(h *match.Hook) {
	c := &call{id: -1, hook: h, round: m.round}
	m.record(c)
	if m.round == lastRound {
		c.state, c.why = skipped, "it is in shadow"
		return
	}
	m.shadows.place(c, m.object)
}

// finish makes the answer, and has the hooks in shadow asked that are left.
func (m *Mutate) finish(calls []*call, status *admissionv1.Status, patch []byte) {
	m.start = append(m.start, m.cast(m.options, m.now)...)
	m.folder.finish(calls, status, patch)
}
