package chain

import (
	"iter"
	"slices"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Validate runs validating hooks. All are matched first, and a matching error refuses the review before any call (SEMANTICS
// C2); then all are called concurrently. Denials are folded before failures, each in the order of the hooks. After the first
// denial the calls of hooks without side effects are cancelled (docs/deviations.md), unless a called hook has
// Route.AllDenials: then the answer waits for all calls and names all denials.
type Validate struct {
	folder
	calls       []*call
	start       []Call
	cancel      []Cancel
	outstanding int // started calls without a result
	started     bool
	denied      bool
	allDenials  bool // a called hook has Route.AllDenials
}

var _ Machine = (*Validate)(nil)

// NewValidate makes the machine of one validating review.
func NewValidate(o Options) *Validate {
	return &Validate{folder: folder{options: &o}}
}

// Next implements [Machine].
func (v *Validate) Next(now time.Time) ([]Call, []Cancel) {
	v.start, v.cancel = v.start[:0], v.cancel[:0]
	if v.done {
		return nil, nil
	}
	if !v.started {
		v.startCalls(now)
	}
	for _, c := range v.calls {
		if c.expire(now) {
			v.cancel = append(v.cancel, Cancel{c.id, review.FailureTimeout})
			v.countEnded(c)
		}
	}
	if v.denied && !v.allDenials {
		v.cancelUndeciding()
	}
	if !v.done && v.outstanding == 0 {
		v.fold()
	}
	return v.start, v.cancel
}

// startCalls matches all candidates and starts the calls of those that apply.
func (v *Validate) startCalls(now time.Time) {
	v.started = true
	object := Object{Raw: v.options.Request.Admission.GetObject().GetRaw()}
	if refused := v.matchHooks(object); refused != nil {
		v.fail(v.calls, refused)
		return
	}
	now = v.options.timeNow(now)
	for _, c := range v.calls {
		switch {
		case c.mode == review.Shadow:
			v.start = append(v.start, c.startShadow(object, now)...)
			continue
		case c.state == skipped:
			continue
		}
		v.outstanding++
		v.allDenials = v.allDenials || c.hook.Route.AllDenials
		if !c.startWithin(v.options, now, min(c.hook.Timeout, v.options.Deadline.Sub(now))) {
			v.countEnded(c)
			continue
		}
		v.start = append(v.start, Call{ID: c.id, Hook: c.hook, Object: object, View: c.view, Deadline: c.deadline})
	}
}

// matchHooks matches all candidates. It returns the status that refuses the review: for a matching error, an object that
// cannot be converted, or a dry run that would reach a hook with side effects.
func (v *Validate) matchHooks(object Object) (refused *admissionv1.Status) {
	calls := make([]call, len(v.options.Hooks))
	v.calls = make([]*call, 0, len(calls))
	v.start = make([]Call, 0, len(calls))
	for i, h := range v.options.Hooks {
		c := &calls[i]
		v.calls = append(v.calls, c)
		if h.Route.Shadow {
			*c = *newShadowCall(v.options, h, object)
			c.id = i
			continue
		}
		c.id, c.hook = i, h
		d := v.options.Match(h, object)
		if d.Err != nil {
			return c.refuse(matchError(h, d.Err))
		}
		if !d.Match {
			c.state, c.reason = skipped, d.Skip
			continue
		}
		if status := c.convert(v.options, object, d.As); status != nil {
			return c.refuse(status)
		}
	}
	for _, c := range v.calls {
		if status := dryRunConflict(c.hook, v.options.Request.Admission); c.state != skipped && c.mode != review.Shadow && status != nil {
			return c.refuse(status)
		}
	}
	return nil
}

// Deliver implements [Machine].
func (v *Validate) Deliver(id int, r review.Result) {
	c := v.calls[id]
	if v.done || c.state != started {
		return
	}
	c.state, c.result = ended, r
	v.countEnded(c)
}

// countEnded counts a call that has ended.
func (v *Validate) countEnded(c *call) {
	v.outstanding--
	if c.interpret() == denies {
		v.denied = true
	}
}

// cancelUndeciding cancels the calls that cannot change the answer after a denial. Hooks with side effects are waited for, as
// upstream.
func (v *Validate) cancelUndeciding() {
	for _, c := range v.calls {
		if c.state == started && c.hook.SideEffects == admissionregistrationv1.SideEffectClassNone {
			c.state = abandoned
			v.cancel = append(v.cancel, Cancel{c.id, review.FailureCancelled})
			v.outstanding--
		}
	}
}

// fold makes the answer once all calls have ended or are cancelled.
func (v *Validate) fold() {
	var denied []*call
	var failed *call
	for _, c := range v.calls {
		if c.state != ended {
			continue
		}
		switch c.interpret() {
		case denies:
			denied = append(denied, c)
		case failedClosed:
			if failed == nil {
				failed = c
			}
		case allows, failedOpen:
		}
	}
	switch {
	case len(denied) > 0 && v.allDenials:
		v.deny(v.calls, denials(denied))
	case len(denied) > 0:
		v.deny(v.calls, denial(denied[0].hook, denied[0].result.Verdict.GetStatus()))
	case failed != nil:
		v.fail(v.calls, failedCall(failed))
	default:
		v.allow(v.calls, nil)
	}
}

// Outcomes implements [Machine].
func (v *Validate) Outcomes() iter.Seq[Outcome] { return outcomesOf(v.calls) }

// Wake implements [Machine].
func (v *Validate) Wake() time.Time {
	var wake time.Time
	for _, c := range v.calls {
		if c.state == started && (wake.IsZero() || c.deadline.Before(wake)) {
			wake = c.deadline
		}
	}
	return wake
}

// dryRunConflict returns the status that refuses a dry run which would reach a hook with side effects, whatever its failure
// policy (SEMANTICS C28); nil if there is no conflict.
func dryRunConflict(h *match.Hook, req *admissionv1.AdmissionRequest) *admissionv1.Status {
	harmless := []admissionregistrationv1.SideEffectClass{
		admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun, undeclaredSideEffects,
	}
	if !req.GetDryRun() || slices.Contains(harmless, h.SideEffects) {
		return nil
	}
	s := internal("hook %q does not support dry run (sideEffects: %s)", h.ID.Name, h.SideEffects)
	s.Code, s.Reason = codeBadRequest, string(metav1.StatusReasonBadRequest)
	return s
}
