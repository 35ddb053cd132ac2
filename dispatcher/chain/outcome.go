package chain

import (
	"iter"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Effect is what a hook did to its review. The set is closed.
type Effect uint8

const (
	// Undecided means that the review was over before the hook had its say.
	Undecided Effect = iota
	// Skipped means that the hook does not apply, or not again.
	Skipped
	// Allowed means that the hook had nothing against the request and did not change it.
	Allowed
	// Patched means that the hook changed the object.
	Patched
	// Denied means that the hook refused the request.
	Denied
	// FailedOpen means that there is no verdict, and the failure policy let the review go on.
	FailedOpen
	// FailedClosed means that there is no verdict, and the failure policy refused the request.
	FailedClosed
	// Refused means that the request was refused for this hook whatever its policy says, and not by its verdict: it could
	// not be matched, has side effects in a dry run, or its patch does not apply.
	Refused
	// Discarded means that the hook was asked ahead of its turn, and that this does not count: another changed the object
	// before its turn came, the review was over, or the call failed. What the hook was asked in its turn is told apart.
	Discarded
	// Shadowed means that the hook is in shadow: it was asked, or would have been if it could, and decides nothing.
	Shadowed
)

// String is the effect as HookOutcome spells it.
func (e Effect) String() string {
	names := [...]string{"skipped", "skipped", "allowed", "patched", "denied", "failed-open", "failed", "failed", "discarded", "shadow"}
	if int(e) >= len(names) {
		return names[Undecided]
	}
	return names[e]
}

// Outcome is what came of one hook in one round of a review.
type Outcome struct {
	// ID is that of the call.
	ID int
	// Hook is the hook.
	Hook *match.Hook
	// Round is 0, or 1 for a reinvocation.
	Round uint32
	// Mode is why the hook was asked.
	Mode review.Mode
	// Effect is what the hook did to the review.
	Effect Effect
	// Reason says why, for the operator; empty when the hook allowed the request.
	Reason string
	// Code is the HTTP status of a denial; else 0.
	Code int32
	// Failure is why there is no verdict; nil when there is one, or the hook was not asked.
	Failure *review.Failure
	// Timing is where the time of the call went.
	Timing review.Timing
	// Applying is how long it took to apply the patch of the verdict; zero without one.
	Applying time.Duration
}

// outcomesOf is what came of calls, in their order.
func outcomesOf(calls []*call) iter.Seq[Outcome] {
	return func(yield func(Outcome) bool) {
		for _, c := range calls {
			o := Outcome{ID: c.id, Hook: c.hook, Round: c.round, Mode: c.mode, Failure: c.result.Failure, Timing: c.result.Timing, Applying: c.applying}
			o.Effect, o.Reason = c.effect()
			if o.Effect == Denied {
				o.Code = max(c.result.Verdict.GetStatus().GetCode(), codeBadRequest)
			}
			if !yield(o) {
				return
			}
		}
	}
}

// effect is what a call did to the review, and why.
func (c *call) effect() (Effect, string) {
	switch {
	case c.mode == review.Shadow:
		return Shadowed, c.why
	case c.refused != nil:
		return Refused, c.refused.GetMessage()
	case c.state == skipped:
		return Skipped, c.why
	case c.state != ended:
		return Undecided, "the review was decided without it"
	case c.result.Failure != nil && c.hook.FailurePolicy == admissionregistrationv1.Ignore:
		return FailedOpen, c.result.Failure.Error()
	case c.result.Failure != nil:
		return FailedClosed, c.result.Failure.Error()
	case !c.result.Verdict.GetAllowed():
		return Denied, c.result.Verdict.GetStatus().GetMessage()
	case c.patched:
		return Patched, ""
	}
	return Allowed, ""
}

// refuse takes note that a review ends for this hook, whatever its policy says.
func (c *call) refuse(s *admissionv1.Status) *admissionv1.Status {
	c.refused = s
	return s
}

// explained is what came of calls in the words of the contract.
func explained(calls []*call) []*admissionv1.HookOutcome {
	out := make([]*admissionv1.HookOutcome, 0, len(calls))
	for o := range outcomesOf(calls) {
		out = append(out, &admissionv1.HookOutcome{
			Configuration: o.Hook.ID.Configuration,
			Hook:          o.Hook.ID.Name,
			Round:         o.Round,
			Outcome:       o.Effect.String(),
			Reason:        o.Reason,
			QueuedUs:      uint32(o.Timing.Queued.Microseconds()),
			WireUs:        uint32(o.Timing.Wire.Microseconds()),
			HostUs:        uint32(o.Timing.Host.Microseconds()),
			ApplyUs:       uint32(o.Applying.Microseconds()),
			Instance:      o.Timing.Instance,
		})
	}
	return out
}
