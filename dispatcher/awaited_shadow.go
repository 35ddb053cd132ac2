package dispatcher

import (
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/shadow"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// shadowUnanswered is the outcome of a hook in shadow that has not answered while its review waited.
const shadowUnanswered = "unanswered"

// awaitedShadow is the result of a shadow call for which its review waits. A nil one is not waited for.
type awaitedShadow struct {
	id      int           // of the call
	ended   chan struct{} // closed after the fields below were written
	outcome string
	chain.Outcome
}

func (a *awaitedShadow) set(outcome string, o chain.Outcome) {
	if a != nil {
		a.outcome, a.Outcome = outcome, o
	}
}

func (a *awaitedShadow) end() {
	if a != nil {
		close(a.ended)
	}
}

// await returns the result to come of a shadow call; nil if the caller does not wait for it.
func (x *run) await(id int) *awaitedShadow {
	if !x.request.AwaitShadows {
		return nil
	}
	a := &awaitedShadow{id: id, ended: make(chan struct{}), outcome: string(shadow.Failed)} // which stays after a panic
	x.awaited = append(x.awaited, a)
	return a
}

// awaitShadows waits for the shadow calls of an explained review until its time is over, and adds their results to its outcomes.
func (x *run) awaitShadows(gone <-chan struct{}, outcomes []*admissionv1.HookOutcome) {
	results := make(map[int]*awaitedShadow, len(x.awaited))
	for _, a := range x.awaited {
		select {
		case <-a.ended:
			results[a.id] = a
		case <-x.lookups.Done():
		case <-gone:
		}
	}
	i := 0
	for o := range x.machine.Outcomes().All { // the outcomes of the answer come first, in the same order
		if i == len(outcomes) {
			return
		}
		if o.Effect == chain.Shadowed {
			results[o.ID].explain(outcomes[i])
		}
		i++
	}
}

// explain adds the result of a call to the outcome of its hook. It is nil if there is none.
func (a *awaitedShadow) explain(o *admissionv1.HookOutcome) {
	switch {
	case a == nil && o.GetReason() != "": // the call could not be made
		o.Shadow = string(shadow.Failed)
	case a == nil:
		o.Shadow = shadowUnanswered
	case a.outcome == chain.Skipped.String(): // as it would be without shadow
		o.Outcome, o.Reason, o.Expressions = a.outcome, a.Reason, a.Expressions
	default:
		o.Shadow, o.Reason, o.Instance, o.Expressions = a.outcome, a.Reason, a.Timing.Instance, a.Expressions
		o.QueuedUs, o.WireUs, o.HostUs = uint32(a.Timing.Queued.Microseconds()), uint32(a.Timing.Wire.Microseconds()), uint32(a.Timing.Host.Microseconds())
	}
}
