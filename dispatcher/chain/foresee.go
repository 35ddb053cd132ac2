package chain

import (
	"errors"
	"fmt"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Foresee is what a hook in shadow would have done to its review by the result of its call: [Allowed], [Patched], [Denied],
// or [FailedOpen] for one that is no verdict. A patch is decoded and not applied: nobody will see what it makes of the
// object, and whether it applies is known when the hook decides.
func Foresee(h *match.Hook, r review.Result) Outcome {
	c := call{hook: h, result: r}
	meaning := c.interpret()
	if meaning == allows {
		if err := c.foreseePatch(); err != nil {
			c.spoil(review.FailureBadAnswer, err)
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

// foreseePatch decodes the patch of a call. Without an object, one that has operations does not apply.
func (c *call) foreseePatch() error {
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
