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

// Validate runs validating hooks: all are matched first, and a matching error ends the review before a single call
// (SEMANTICS C2); then all are called at once. Denials are folded before failures, and both in the order of the hooks.
// After the first denial the calls without side effects are cancelled (docs/deviations.md), unless one of the hooks that
// were called asks for all denials: then all are waited for, and the answer names each that denies.
type Validate struct {
	folder
	calls  []*call
	start  []Call
	cancel []Cancel
	open   int // started calls without a result
	begun  bool
	denied bool
	all    bool // a hook that was called asks for all denials
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
	if !v.begun {
		v.begin(now)
	}
	for _, c := range v.calls {
		if c.expire(now) {
			v.cancel = append(v.cancel, Cancel{c.id, review.FailureTimeout})
			v.settle(c)
		}
	}
	if v.denied && !v.all {
		v.abandon()
	}
	if !v.done && v.open == 0 {
		v.fold()
	}
	return v.start, v.cancel
}

// begin matches every candidate and starts those that apply.
func (v *Validate) begin(now time.Time) {
	v.begun = true
	object := Object{Raw: v.options.Request.Admission.GetObject().GetRaw()}
	if refused := v.consider(object); refused != nil {
		v.fail(v.calls, refused)
		return
	}
	now = v.options.clock(now)
	for _, c := range v.calls {
		switch {
		case c.mode == review.Shadow:
			v.start = append(v.start, c.shadowed(object, now)...)
			continue
		case c.state == skipped:
			continue
		}
		v.open++
		v.all = v.all || c.hook.Route.AllDenials
		if !c.begin(v.options, now, min(c.hook.Timeout, v.options.Deadline.Sub(now))) {
			v.settle(c)
			continue
		}
		v.start = append(v.start, Call{ID: c.id, Hook: c.hook, Object: object, View: c.view, Deadline: c.deadline})
	}
}

// consider matches every candidate. What cannot be matched refuses the review before a single call, and so does what a dry
// run may not reach.
func (v *Validate) consider(object Object) (refused *admissionv1.Status) {
	calls := make([]call, len(v.options.Hooks))
	v.calls = make([]*call, 0, len(calls))
	v.start = make([]Call, 0, len(calls))
	for i, h := range v.options.Hooks {
		c := &calls[i]
		v.calls = append(v.calls, c)
		if h.Route.Shadow {
			*c = *inShadow(v.options, h, object)
			c.id = i
			continue
		}
		c.id, c.hook = i, h
		d := v.options.Match(h, object)
		if d.Err != nil {
			return c.refuse(matchError(h, d.Err))
		}
		if !d.Match {
			c.state, c.why = skipped, d.Skip
			continue
		}
		if status := c.see(v.options, object, d.As); status != nil {
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
	v.settle(c)
}

// settle takes note of a call that has ended.
func (v *Validate) settle(c *call) {
	v.open--
	if c.interpret() == denies {
		v.denied = true
	}
}

// abandon gives up the calls whose results cannot change the answer any more. Hooks with side effects are waited for, so
// that their calls end as they would upstream.
func (v *Validate) abandon() {
	for _, c := range v.calls {
		if c.state == started && c.hook.SideEffects == admissionregistrationv1.SideEffectClassNone {
			c.state = abandoned
			v.cancel = append(v.cancel, Cancel{c.id, review.FailureCancelled})
			v.open--
		}
	}
}

// fold makes the answer of the calls, which have all ended or been abandoned.
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
		case fails:
			if failed == nil {
				failed = c
			}
		case allows, opens:
		}
	}
	switch {
	case len(denied) > 0 && v.all:
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

// dryRunConflict is the status of a dry run that a hook with side effects would have to see: it is refused whatever the
// failure policy says, and the hook is not called (SEMANTICS C28).
func dryRunConflict(h *match.Hook, req *admissionv1.AdmissionRequest) *admissionv1.Status {
	harmless := []admissionregistrationv1.SideEffectClass{
		admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun, undeclared,
	}
	if !req.GetDryRun() || slices.Contains(harmless, h.SideEffects) {
		return nil
	}
	s := internal("hook %q does not support dry run (sideEffects: %s)", h.ID.Name, h.SideEffects)
	s.Code, s.Reason = codeBadRequest, string(metav1.StatusReasonBadRequest)
	return s
}
