package chain

import (
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Effect is the effect of a hook on its review. The set is closed.
type Effect uint8

const (
	// Undecided means that the review ended before the verdict of the hook counted.
	Undecided Effect = iota
	// Skipped means that the hook does not apply, or is not called again. A policy may have had to be judged to know.
	Skipped
	// Allowed means that the hook allowed the request and did not change the object.
	Allowed
	// Patched means that the hook changed the object.
	Patched
	// Denied means that the hook denied the request.
	Denied
	// FailedOpen means that there is no verdict, and failurePolicy Ignore, Options.FailOpen, or a policy that does not deny let the review go on.
	FailedOpen
	// FailedClosed means that there is no verdict, and failurePolicy Fail refused the request.
	FailedClosed
	// Refused means that the request was refused because of the hook, whatever its failure policy and not by its verdict: it
	// could not be matched, has side effects in a dry run, or its patch does not apply.
	Refused
	// Discarded means that a speculative call does not count: another hook changed the object before its turn, the review
	// ended, or the call failed. A call at the turn of the hook has an outcome of its own.
	Discarded
	// Shadowed means that the hook is in shadow: it was called, or could not be called, and decides nothing.
	Shadowed
)

// String returns the effect as HookOutcome spells it.
func (e Effect) String() string {
	const failed = string(review.OutcomeFailed)
	names := [...]string{
		"skipped", "skipped", string(review.OutcomeAllowed), "patched", string(review.OutcomeDenied), string(review.OutcomeFailedOpen), failed, failed,
		"discarded", "shadow",
	}
	if int(e) >= len(names) {
		return names[Undecided]
	}
	return names[e]
}

// Outcome is the outcome of one call of a review.
type Outcome struct {
	review.Call

	// Effect is the effect on the review.
	Effect Effect
	// Reason explains the effect to the operator; empty if the hook allowed the request.
	Reason string
	// Code is the HTTP status of a denial; else 0.
	Code int32
	// False names the validations of a policy that are false, if it has denied the request.
	False string
	// Failure is why there is no verdict; nil if there is one, or no call.
	Failure *review.Failure
	// Timing is where the time of the call went.
	Timing review.Timing
	// Applying is the time that it took to apply the patch; zero without one.
	Applying time.Duration
	// Expressions are the expressions that explain the verdict of a policy, if the review asks for them.
	Expressions []*admissionv1.Expression
}

// Outcomes are the outcomes of a review so far.
type Outcomes struct{ counted, discarded []*call }

// All yields the outcome of each hook in each round, in order, including skipped hooks, followed by the speculative calls that do not
// count.
func (o Outcomes) All(yield func(Outcome) bool) {
	for _, c := range o.counted {
		if !yield(c.outcome()) {
			return
		}
	}
	for _, c := range o.discarded {
		x := c.outcome()
		x.Effect, x.Reason, x.Code = Discarded, "", 0
		if !yield(x) {
			return
		}
	}
}

func (c *call) outcome() Outcome {
	o := Outcome{Call: c.Call, Failure: c.result.Failure, Timing: c.result.Timing, Applying: c.applying, Expressions: c.result.Expressions}
	if o.Effect, o.Reason = c.effect(); o.Effect == Denied {
		o.Code, o.False = max(c.result.Verdict.GetStatus().GetCode(), codeBadRequest), c.result.Why
	}
	return o
}

// effect returns the effect of a call, and its reason.
func (c *call) effect() (Effect, string) {
	switch {
	case c.Mode == review.Shadow:
		return Shadowed, c.reason
	case c.refused != nil:
		return Refused, c.refused.GetMessage()
	case c.state == skipped:
		return Skipped, c.reason
	case c.state != ended:
		return Undecided, "the review was decided without it"
	case c.result.Failure != nil:
		return c.resultEffect(), c.result.Failure.Error()
	case !c.result.Verdict.GetAllowed():
		return Denied, c.result.Verdict.GetStatus().GetMessage()
	case c.result.Why != "":
		return Skipped, c.result.Why
	case c.patched:
		return Patched, ""
	}
	return Allowed, ""
}

func (c *call) failedOpen() bool {
	effect, _ := c.effect()
	return effect == FailedOpen
}

// OwnStage is the stage of a hook in outcomes and annotations. It is empty unless the hook is an initializer: other hooks have the stage of their
// review.
func OwnStage(h *match.Hook) string {
	if h.Initializes() {
		return match.StageName(h.ID.Stage)
	}
	return ""
}

func hookOutcomes(calls []*call) []*admissionv1.HookOutcome {
	out := make([]*admissionv1.HookOutcome, 0, len(calls))
	for o := range (Outcomes{counted: calls}).All {
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
			Stage:         OwnStage(o.Hook),
			Expressions:   o.Expressions,
		})
	}
	return out
}
