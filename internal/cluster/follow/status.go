package follow

import (
	"fmt"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

// State is how far an object is followed.
type State string

// The states of an object.
const (
	// Followed: the mesh calls its webhooks, and the API server does not.
	Followed State = "Followed"
	// Waiting: it is on the way there, or back. The API server calls its webhooks, and the mesh may as well.
	Waiting State = "Waiting"
	// Refused: it is not followed, for the reason in the message. The API server calls its webhooks.
	Refused State = "Refused"
	// Failed: the last step did not succeed and is tried again.
	Failed State = "Failed"
)

// ObjectStatus is the state of one object.
type ObjectStatus struct {
	// Object is KIND/NAME in the cluster.
	Object string
	// Copy is the copy in the mesh.
	Copy config.Key
	// State is how far it is followed.
	State State
	// Message tells why the object waits, or gives a remedy; empty for a followed object.
	Message string
}

// describe is the state of an object that would take a step next.
func (o *followed) describe(step Step, err error) (State, string) {
	v := o.view
	switch {
	case err != nil:
		return Failed, fmt.Sprintf("%s: %v", step.verb(), err)
	case o.refused != "":
		return Refused, o.refused
	case v.reason != "":
		return Refused, v.reason
	case v.checking:
		return Waiting, "it is checked whether the mesh reaches its webhooks"
	case step == SwitchOn:
		return Waiting, "it is switched on again"
	case !v.exists:
		return Waiting, "its original is gone, and the copy is removed"
	case v.wanted == nil:
		return Waiting, "it is not followed any more: the copy is removed once each API server calls the original"
	case step == SwitchOff || (step == Nothing || step == WriteAgain) && v.conditions == Off:
		return Followed, ""
	case step == WriteCopy || !v.inForce:
		return Waiting, "the copy is not in force in every dispatcher yet"
	case !v.covered:
		return Waiting, "the entries of the cluster do not bring all requests of its hooks to the mesh: see entry-drift, or run " +
			"`portcullis cluster register`"
	case !v.known:
		return Waiting, "the entries of the cluster have changed, and are written once more first: an API server can miss a change"
	}
	return Waiting, fmt.Sprintf("its owner has removed the condition %d times: it stays on until %s, and its webhooks are called twice",
		o.drops, o.heldUntil.UTC().Format("15:04:05Z"))
}

// verb describes a step in messages.
func (s Step) verb() string {
	switch s {
	case WriteCopy:
		return "writing the copy"
	case RemoveCopy:
		return "removing the copy"
	case SwitchOn:
		return "switching the original on"
	case SwitchOff:
		return "switching the original off"
	case WriteAgain:
		return "writing the original once more"
	case Nothing:
	}
	return "waiting"
}

// report notes the state of an object after a step, and logs a change of it.
func (f *follower) report(o *followed, step Step, err error) {
	state, message := o.describe(step, err)
	if (step == SwitchOn || step == SwitchOff || step == RemoveCopy) && err == nil && o.refused == "" {
		f.log.Info("a followed object is changed", "step", step.verb(), "object", o.origin)
	}
	if state == o.state && message == o.message {
		return
	}
	o.state, o.message = state, message
	if state == Failed || state == Refused {
		f.log.Warn("an object is not followed", "object", o.origin, "state", string(state), "reason", message)
	} else {
		f.log.Info("the state of a followed object has changed", "object", o.origin, "state", string(state), "waits_for", message)
	}
}
