package chain

import (
	"errors"
	"time"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// newShadowCall matches and converts for a shadow hook at its turn. An error is the reason why the call cannot be made, and
// does not refuse the review. The machine does not wait for the call.
func newShadowCall(o *Options, h *match.Hook, object Object) *call {
	c := newCall(h, 0)
	c.convert(o, object, c.match(o, object))
	if c.state == skipped {
		return c
	}
	c.Mode = review.Shadow
	if c.refused == nil {
		c.refused = refuseDryRun(h, o.Request.Admission)
	}
	switch {
	case c.refused != nil:
		c.reason, c.refused = c.refused.GetMessage(), nil
	case o.Request.Admission.GetDryRun() && h.SideEffects == undeclaredSideEffects:
		c.reason = reachedByDryRun
	}
	return c
}

// startShadow adds a shadow call to those that Next returns, if it can be made. Its deadline is the whole timeout of the hook,
// even past the end of the review.
func (m *machine) startShadow(c *call, object Object, now time.Time) {
	if c.Mode == review.Shadow && c.reason == "" {
		c.Deadline = now.Add(c.Hook.Timeout)
		m.toStart = append(m.toStart, c.start(object))
	}
}

// takeShadowTurn gives a shadow hook its turn. Shadow hooks are skipped in the second round.
func (m *Mutate) takeShadowTurn(h *match.Hook) {
	if m.round == lastRound {
		c := newCall(h, m.round)
		c.skip("it is in shadow")
		m.addCall(c)
		return
	}
	c := newShadowCall(&m.options, h, m.object)
	m.addCall(c)
	m.startShadow(c, m.object, m.options.timeNow(m.now))
}

// EvaluateShadow returns the effect that a shadow hook would have had on its review: [Skipped], [Allowed], [Patched], [Denied], or [FailedOpen] for a
// failure. A patch is decoded and not applied, so a patch that does not apply counts as Patched.
func EvaluateShadow(h *match.Hook, r review.Result) Outcome {
	c := newCall(h, 0)
	c.state, c.result = ended, r
	if c.interpret() == Allowed {
		if err := c.decodePatch(); err != nil {
			c.failPatch(review.FailureBadAnswer, err)
		}
	}
	o := c.outcome()
	if o.Effect == FailedClosed {
		o.Effect = FailedOpen
	}
	return o
}

// decodePatch decodes the patch of a call, by applying it to no object: a patch with operations then does not apply.
func (c *call) decodePatch() error {
	v := c.result.Verdict
	_, _, err := conversion.Patch(nil, nil, v.GetPatch())
	switch {
	case err != nil && v.GetPatchType() != jsonPatch:
		return unsupported(v.GetPatchType(), err)
	case errors.Is(err, ErrBadPatch):
		return err
	}
	c.patched = err != nil
	return nil
}
