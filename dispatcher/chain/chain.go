// Package chain decides what happens to a review once its hooks are known: which hook is called with which object, what
// each result means, and what the answer is. Mutating hooks are a serial chain on the evolving object, validating hooks
// a fan-out.
//
// Both are machines without goroutine, clock or I/O: the shell asks [Machine.Next] what to start and to cancel, reports
// results with [Machine.Deliver] and time by calling Next again, until [Machine.Answer] has one. A machine belongs to one
// review and to one goroutine.
package chain

import (
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Object is the object of a review as the hooks changed it so far.
type Object struct {
	// Raw is the JSON, nil when the review has no object (DELETE). It is never written.
	Raw []byte
	// Revision counts the changes by hooks; 0 is what the API server sent.
	Revision uint32
}

// Call is one hook that the shell has to ask.
type Call struct {
	// ID names the call in this review.
	ID int
	// Hook is who is asked.
	Hook *match.Hook
	// Object is what the hook sees.
	Object Object
	// Round is 0, or 1 for a reinvocation.
	Round uint32
	// Deadline is when a verdict comes too late.
	Deadline time.Time
}

// Cancel is a call whose result is no longer wanted.
type Cancel struct {
	// ID is that of the call.
	ID int
	// Kind says why: its time is over, or the answer does not depend on it any more.
	Kind review.FailureKind
}

// Machine is the decision part of one review.
type Machine interface {
	// Next returns the calls to start and the calls whose results are no longer wanted. It is called first, after each
	// Deliver, and when [Machine.Wake] has passed. The slices are valid until the next call.
	Next(now time.Time) (start []Call, cancel []Cancel)
	// Deliver reports how a call ended. A result of a call that is no longer wanted is ignored.
	Deliver(id int, r review.Result)
	// Wake is when Next has to be called even if no result came; zero when nothing is outstanding.
	Wake() time.Time
	// Answer returns the answer once there is one; it stays the same from then on.
	Answer() (review.Answer, bool)
}

// Codec changes and compares objects.
type Codec interface {
	// Apply applies a JSON patch to an object, which is nil when the request has none: then every patch that is not empty
	// does not apply. It returns an error that matches [ErrBadPatch] when the patch cannot be
	// decoded (SEMANTICS C20), any other when it does not apply (C21), and changed = false together with the object
	// itself when nothing differs afterwards (C10).
	Apply(object, patch []byte) (result []byte, changed bool, err error)
	// Diff returns the JSON patch that leads from one object to another.
	Diff(from, to []byte) ([]byte, error)
}

// Options is what a machine works on.
type Options struct {
	// Request is the review.
	Request *review.Request
	// Revision is the digest of the configuration that judges.
	Revision string
	// Hooks are the candidates, in order: hooks of the stage whose rules may match.
	Hooks []*match.Hook
	// Match says whether a hook applies to the object as it is now.
	Match func(h *match.Hook, object Object) match.Decision
	// Codec applies and makes patches; needed by [NewMutate] only.
	Codec Codec
	// Deadline is when the answer has to be ready; it bounds all calls together.
	Deadline time.Time
}

// state is how far a call is.
type state uint8

const (
	idle      state = iota // not decided yet
	skipped                // the hook does not apply
	started                // handed to the shell
	ended                  // there is a result
	abandoned              // started, but its result is no longer wanted
)

// call is one hook in one round.
type call struct {
	hook     *match.Hook
	round    uint32
	state    state
	why      string // of skipped
	deadline time.Time
	result   review.Result
	patched  bool                           // its patch changed the object
	said     *admissionv1.AdmissionResponse // the verdict of a call that has failed for its patch
}

// undeclared is the sideEffects of a hook that says nothing about them.
const undeclared = ""

// begin starts a call, bounded by the hook's own timeout and by the review's deadline. It reports false when no time is
// left, and for a dry run that reaches a hook which does not declare its side effects, a failure for which its policy
// decides (SEMANTICS C28): the call has then ended without being made.
func (c *call) begin(o *Options, now time.Time) bool {
	if c.hook.SideEffects == undeclared && o.Request.Admission.GetDryRun() {
		c.state = ended
		c.result = review.Fail(review.FailureRefused, "it declares no sideEffects, so that a dry run may not reach it")
		return false
	}
	c.deadline = now.Add(c.hook.Timeout)
	if o.Deadline.Before(c.deadline) {
		c.deadline = o.Deadline
	}
	if !now.Before(c.deadline) {
		c.state = ended
		c.result = review.Fail(review.FailureTimeout, "no time left to call it")
		return false
	}
	c.state = started
	return true
}

// expire ends a started call whose deadline has passed; it reports whether it did.
func (c *call) expire(now time.Time) bool {
	if c.state != started || now.Before(c.deadline) {
		return false
	}
	c.state = ended
	c.result = review.Fail(review.FailureTimeout, "no verdict in time (timeout %s)", c.hook.Timeout)
	return true
}
