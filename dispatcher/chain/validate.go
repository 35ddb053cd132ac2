package chain

import (
	"slices"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Validate runs validating policies and then, if none denies, validating hooks, as the plugins of kube-apiserver do. All hooks of a group are matched
// first, and a matching error refuses the review before any call (SEMANTICS C2); then all are called concurrently. Denials are folded before failures,
// each in the order of the hooks. After the first denial the calls of hooks without side effects are cancelled (docs/deviations.md), unless a called
// hook has Route.AllDenials: then the answer waits for all calls and names all denials.
type Validate struct {
	machine
	outstanding int  // started calls without a result
	next        int  // index into Hooks of the next group
	denied      bool // a call that has ended refuses the request
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
	for !v.done && v.moreToStart() {
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
	if !v.done && v.outstanding == 0 && !v.moreToStart() {
		v.fold()
	}
	return v.toStart, v.cancel
}

// moreToStart reports whether the hooks behind the policies are still to be called.
func (v *Validate) moreToStart() bool {
	return v.outstanding == 0 && !v.denied && v.next < len(v.options.Hooks)
}

// nextGroup returns the policies, and then the other hooks.
func (v *Validate) nextGroup() []*match.Hook {
	rest := v.options.Hooks[v.next:]
	n := slices.IndexFunc(rest, func(h *match.Hook) bool { return h.Policy == nil })
	if n <= 0 {
		n = len(rest)
	}
	v.next += n
	return rest[:n]
}

func (v *Validate) startCalls(now time.Time) {
	object, first := Object{Raw: v.options.Request.Admission.GetObject().GetRaw()}, len(v.calls)
	if refused := v.matchHooks(v.nextGroup(), object); refused != nil {
		v.fail(refused)
		return
	}
	now, v.allDenials = v.options.timeNow(now), false
	for _, c := range v.calls[first:] {
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

// matchHooks matches the candidates of a group. It returns the status that refuses the review: for a matching error, an object that
// cannot be converted, or a dry run that would reach a hook with side effects.
func (v *Validate) matchHooks(group []*match.Hook, object Object) (refused *admissionv1.Status) {
	first, calls := len(v.calls), make([]call, len(group))
	v.calls, v.toStart = slices.Grow(v.calls, len(group)), slices.Grow(v.toStart, len(group))
	for i, h := range group {
		c := &calls[i]
		v.calls = append(v.calls, c)
		if h.Route.Shadow {
			*c = *newShadowCall(&v.options, h, object)
			c.ID = first + i
			continue
		}
		c.ID, c.Hook = first+i, h
		c.convert(&v.options, object, c.match(&v.options, object))
		if c.refused != nil {
			return c.refused
		}
	}
	for _, c := range v.calls[first:] {
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
	c.interpret()
	v.denied = v.denied || c.refuses()
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

// fold makes the answer once all calls have ended or are cancelled. Hooks that a denial of a policy left out have calls that were not made.
func (v *Validate) fold() {
	for _, h := range v.options.Hooks[v.next:] {
		v.calls = append(v.calls, &call{Call: review.Call{ID: len(v.calls), Hook: h}})
	}
	var refusing []*call // denials, and policies that failed closed
	var failed *call     // the first without an answer
	denied := false
	for _, c := range v.calls {
		if c.state != ended {
			continue
		}
		effect := c.resultEffect()
		denied = denied || effect == Denied
		switch {
		case c.refuses():
			refusing = append(refusing, c)
		case effect == FailedClosed && failed == nil:
			failed = c
		}
	}
	if len(refusing) > 1 && !v.allDenials {
		refusing = refusing[:1]
	}
	switch {
	case denied:
		v.finish(denials(refusing), nil)
	case len(refusing) > 0:
		v.fail(denials(refusing))
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
