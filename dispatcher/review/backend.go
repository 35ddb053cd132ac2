package review

import (
	"context"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// Backend carries calls to hosts or webhooks.
type Backend interface {
	// Start starts the calls of a call set and never blocks. done is called exactly once for each call, with its index in
	// b.Calls, from any goroutine and possibly before Start returns; it never blocks. The returned function cancels one
	// call: done is then called before it returns, with the timing so far, unless it was called before. ctx carries the trace; its end does not end the calls.
	// Neither side changes the call set.
	Start(ctx context.Context, b *CallSet, done func(i int, r Result)) (cancel func(i int))
}

// Capacity provides the load of the replicas of hooks.
type Capacity interface {
	// Spare reports whether a replica of a hook accepts calls of a mode, and can take one for a cluster now without a slot that
	// calls that decide need. It may be called concurrently and must be cheap.
	Spare(h *match.Hook, mode Mode, cluster string) bool
}

// CallSet is one request for one or more hooks.
type CallSet struct {
	// Request is the request in the version that the hooks take.
	Request *admissionv1.AdmissionRequest
	// Body is Request and the trace of the review, encoded once for all hosts; it may be empty for webhooks.
	Body wire.Body
	// Reservation accounts for the memory of Request and Body; nil if there is no ledger. The review holds it until the calls have
	// ended. A backend that needs Request or Body for longer retains it.
	Reservation *memory.Reservation
	// Calls are the calls to start.
	Calls []Call
}
