package adapt

import "github.com/portcullis-mesh/portcullis/bridge/jsonreview"

// Outcome is how a call ended. It is a metric label: the set is closed.
type Outcome uint8

// The outcomes of calls.
const (
	// Allowed and Denied are verdicts.
	Allowed Outcome = iota + 1
	Denied
	// Unreachable: no connection was had. The call may go to another replica.
	Unreachable
	// Overloaded: HTTP 429 or 503.
	Overloaded
	// TimedOut: no answer before the deadline.
	TimedOut
	// Lost: the connection ended before the answer had.
	Lost
	// Broken: the answer is no verdict.
	Broken
	// Cancelled: the mesh does not wait any more. It says nothing about the webhook.
	Cancelled
)

// String returns the outcome as a metric label.
func (o Outcome) String() string {
	names := [...]string{"unknown", "allowed", "denied", "unreachable", "overloaded", "timeout", "lost", "bad_answer", "cancelled"}
	if int(o) >= len(names) {
		return names[0]
	}
	return names[o]
}

func outcomeOf(f *jsonreview.Fault) Outcome {
	switch f.Kind {
	case jsonreview.Overloaded, jsonreview.Unavailable:
		return Overloaded
	case jsonreview.CutOff:
		return Lost
	case jsonreview.BadAnswer, jsonreview.Failed, jsonreview.TooLarge:
	}
	return Broken
}
