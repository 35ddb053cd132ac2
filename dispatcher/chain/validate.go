package chain

import (
	"slices"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Validate runs validating hooks. All are matched first, and a matching error refuses the review before any call (SEMANTICS
// C2); then all are called concurrently. Denials are folded before failures, each in the order of the hooks. After the first
// denial the calls of hooks without side effects are cancelled (docs/deviations.md), unless a called hook has
// Route.AllDenials: then the answer waits for all calls and names all denials.
type Validate struct {
	machine
	outstanding int // started calls without a result
	started     bool
	denied      bool
	allDenials  bool // a called hook has Route.AllDenials
}

var _ Machine = (*Validate)(nil)

// NewValidate makes the machine of one validating review.
func NewValidate(o Options) *Validate {
	return &Validate{machine: machine{options: o}}
}

// Next implements [Machine].
func (v *Validate) Next(now time.Time) ([]Start, []int) {
	v.toStart, v.cancel = v.toStart[:0], v.cancel[:0]
	if v.done {
		return nil, nil
	}
	if !v.started {
		v.startCalls(now)
	}
	for _, c := range v.calls {
		if c.expire(&v.options, now) {
			v.cancel = append(v.cancel, c.ID)
			v.countEnded(c)
		}
	}
	if v.denied && !v.allDenials {
		v.cancelUndeciding()
	}
	if !v.done && v.outstanding == 0 {
		v.fold()
	}
	return v.toStart, v.cancel
}

func (v *Validate) startCalls(now time.Time) {
	v.started = true
	object := Object{Raw: v.options.Request.Admission.GetObject().GetRaw()}
	if refused := v.matchHooks(object); refused != nil {
		v.fail(refused)
		return
	}
	now = v.options.timeNow(now)
	for _, c := range v.calls {
		switch {
		case c.Mode == review.Shadow:
			v.startShadow(c, object, now)
			continue
		case c.state == skipped:
			continue
		}
		v.outstanding++
		v.allDenials = v.allDenials || c.Hook.Route.AllDenials
		if !c.startWithin(&v.options, now, v.timeLeft(c.Hook, now)) {
			v.countEnded(c)
			continue
		}
		v.toStart = append(v.toStart, c.start(object))
	}
}

// matchHooks matches all candidates. It returns the status that refuses the review: for a matching error, an object that
// cannot be converted, or a dry run that would reach a hook with side effects.
func (v *Validate) matchHooks(object Object) (refused *admissionv1.Status) {
	calls := make([]call, len(v.options.Hooks))
	v.calls = make([]*call, 0, len(calls))
	v.toStart = make([]Start, 0, len(calls))
	for i, h := range v.options.Hooks {
		c := &calls[i]
		v.calls = append(v.calls, c)
		if h.Route.Shadow {
			*c = *newShadowCall(&v.options, h, object)
			c.ID = i
			continue
		}
		c.ID, c.Hook = i, h
		c.convert(&v.options, object, c.match(&v.options, object))
		if c.refused != nil {
			return c.refused
		}
	}
	for _, c := range v.calls {
		if status := refuseDryRun(c.Hook, v.options.Request.Admission); c.state != skipped && c.Mode != review.Shadow && status != nil {
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

func (v *Validate) countEnded(c *call) {
	v.outstanding--
	v.denied = c.interpret() == Denied || v.denied
}

// cancelUndeciding cancels the calls that cannot change the answer after a denial. Hooks with side effects are waited for, as
// upstream.
func (v *Validate) cancelUndeciding() {
	for _, c := range v.calls {
		if c.state == started && c.Hook.SideEffects == admissionregistrationv1.SideEffectClassNone {
			c.state = abandoned
			v.cancel = append(v.cancel, c.ID)
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
		switch effect := c.resultEffect(); {
		case effect == Denied:
			denied = append(denied, c)
		case effect == FailedClosed && failed == nil:
			failed = c
		}
	}
	switch {
	case len(denied) > 0 && v.allDenials:
		v.finish(denials(denied), nil)
	case len(denied) > 0:
		v.finish(denied[0].denial(), nil)
	case failed != nil:
		v.fail(failedCall(&v.options, failed))
	default:
		v.finish(nil, nil)
	}
}

// Outcomes implements [Machine].
func (v *Validate) Outcomes() Outcomes { return Outcomes{counted: v.calls} }

// Wake implements [Machine].
func (v *Validate) Wake() time.Time { return earliestDeadline(slices.Values(v.calls)) }
