package chain

import (
	"errors"
	"fmt"
	"time"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// newShadowCall matches and converts for a shadow hook at its turn. An error is the reason why the call cannot be made, and
// does not refuse the review. The machine does not wait for the call.
func newShadowCall(o *Options, h *match.Hook, object Object) *call {
	c := &call{id: -1, hook: h}
	d := o.Match(h, object)
	if d.Err == nil && !d.Match {
		c.state, c.reason = skipped, d.Skip
		return c
	}
	c.mode = review.Shadow
	if d.Err != nil {
		c.reason = matchError(h, d.Err).GetMessage()
		return c
	}
	status := c.convert(o, object, d.As)
	if status == nil {
		status = dryRunConflict(h, o.Request.Admission)
	}
	switch {
	case status != nil:
		c.reason = status.GetMessage()
	case o.Request.Admission.GetDryRun() && h.SideEffects == undeclaredSideEffects:
		c.reason = reachedByDryRun
	}
	return c
}

// startShadow returns the shadow call to start, if it can be made. Its deadline is the whole timeout of the hook, even past the
// end of the review.
func (c *call) startShadow(object Object, now time.Time) (start []Call) {
	if c.mode != review.Shadow || c.reason != "" {
		return nil
	}
	return []Call{{
		ID: c.id, Hook: c.hook, Object: object, View: c.view, Mode: review.Shadow, Deadline: now.Add(c.hook.Timeout),
	}}
}

// takeShadowTurn gives a shadow hook its turn. Shadow hooks are skipped in the second round.
func (m *Mutate) takeShadowTurn(h *match.Hook) {
	if m.round == lastRound {
		m.addCall(&call{id: -1, hook: h, round: m.round, state: skipped, reason: "it is in shadow"})
		return
	}
	c := newShadowCall(m.options, h, m.object)
	m.addCall(c)
	m.start = append(m.start, c.startShadow(m.object, m.options.timeNow(m.now))...)
}

// EvaluateShadow returns what a shadow hook would have done to its review: [Allowed], [Patched], [Denied], or [FailedOpen] for
// a failure. A patch is decoded and not applied, so a patch that does not apply counts as Patched.
func EvaluateShadow(h *match.Hook, r review.Result) Outcome {
	c := call{hook: h, result: r}
	meaning := c.interpret()
	if meaning == allows {
		if err := c.decodePatch(); err != nil {
			c.failPatch(review.FailureBadAnswer, err)
			meaning = c.interpret()
		}
	}
	o := Outcome{Hook: h, Failure: c.result.Failure, Timing: c.result.Timing}
	switch {
	case meaning == denies:
		status := c.result.Verdict.GetStatus()
		o.Effect, o.Reason, o.Code = Denied, status.GetMessage(), max(status.GetCode(), codeBadRequest)
	case meaning != allows:
		o.Effect, o.Reason = FailedOpen, o.Failure.Error()
	case c.patched:
		o.Effect = Patched
	default:
		o.Effect = Allowed
	}
	return o
}

// decodePatch decodes the patch of a call, by applying it to no object: a patch with operations then does not apply.
func (c *call) decodePatch() error {
	v := c.result.Verdict
	_, _, err := conversion.Patch(nil, nil, v.GetPatch())
	switch {
	case errors.Is(err, ErrBadPatch):
		return err
	case err != nil && v.GetPatchType() != jsonPatch:
		return fmt.Errorf("unsupported patch type %q, want %q", v.GetPatchType(), jsonPatch)
	}
	c.patched = err != nil
	return nil
}
