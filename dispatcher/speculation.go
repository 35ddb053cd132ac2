package dispatcher

import (
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
)

// What calls ahead of their turn were good for, as portcullis_hook_speculation_total has it.
const (
	speculationCounted   = "counted"   // the verdict was heard in its turn
	speculationDiscarded = "discarded" // another hook changed the object, or ended the review
	speculationFailed    = "failed"    // there was no verdict: the hook was asked again, if its turn came
)

// speculated counts a call that was made ahead of its turn.
func (i *instrumentation) speculated(o chain.Outcome) {
	outcome := speculationCounted
	switch {
	case o.Effect == chain.Discarded && o.Failure != nil:
		outcome = speculationFailed
	case o.Effect == chain.Discarded, o.Effect == chain.Undecided:
		outcome = speculationDiscarded
	}
	i.ahead.WithLabelValues(o.Hook.ID.Name, typeLabel(o.Hook), outcome).Inc()
}
