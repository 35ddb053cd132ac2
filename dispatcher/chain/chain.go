// Package chain decides what happens to a review once its hooks are known: which hook is called with which object, what
// each result means, and what the answer is. Mutating hooks are a serial chain on the evolving object, validating hooks
// a fan-out.
//
// Both are machines without goroutine, clock or I/O of their own: the shell asks [Machine.Next] what to start and to
// cancel, reports results with [Machine.Deliver] and time by calling Next again, until [Machine.Answer] has one. A machine
// belongs to one review and to one goroutine.
package chain

import (
	"iter"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
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

// View is a request in the version that a hook takes. It is never written.
type View struct {
	// As is the version.
	As conversion.ResourceKind
	// Object and OldObject are the objects in it; nil where the request has none.
	Object, OldObject []byte
}

// Call is one hook that the shell has to ask.
type Call struct {
	// ID names the call in this review.
	ID int
	// Hook is who is asked.
	Hook *match.Hook
	// Object is the object of the review, in the version in which it came.
	Object Object
	// View is what the hook sees instead, if it takes another version; nil is Object itself.
	View *View
	// Round is 0, or 1 for a reinvocation.
	Round uint32
	// Mode is why the hook is asked. The result of a call in shadow is not delivered: the machine has done with it.
	Mode review.Mode
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
	// Deliver, and when [Machine.Wake] has passed. The slices are valid until the next call. Once there is an answer, it
	// starts calls in shadow at most, and those that it started in the step that led to the answer.
	//
	// A hook may be called more often than once in a round, but only one call of each is outstanding at a time, beside
	// one in shadow: the calls that were neither delivered nor cancelled are never more than the hooks.
	Next(now time.Time) (start []Call, cancel []Cancel)
	// Deliver reports how a call ended. A result of a call that is no longer wanted is ignored.
	Deliver(id int, r review.Result)
	// Wake is when Next has to be called even if no result came; zero when nothing is outstanding.
	Wake() time.Time
	// Answer returns the answer once there is one; it stays the same from then on.
	Answer() (review.Answer, bool)
	// Outcomes is what came so far of each hook that was considered, in order: all rounds, also those that were skipped.
	// Behind them come the calls that were made ahead of their turn and do not count.
	Outcomes() iter.Seq[Outcome]
}

// Codec changes and compares the objects of one review. It belongs to the goroutine of the review, and may remember what it
// returned: objects are never written.
type Codec interface {
	// Apply applies a JSON patch to an object, which is nil when the request has none: then every patch that is not empty
	// does not apply. It returns an error that matches [ErrBadPatch] when the patch cannot be
	// decoded or is past a limit (SEMANTICS C20), one that matches [conversion.ErrStopped] or is a [memory.FullError] when there is
	// neither time nor memory for it, any other when it does not apply (C21). The result is what the next hook sees. changed is
	// whether hooks that were asked before have to be asked again (C10): an object whose defaults alone were filled in, or
	// that is only written differently, has not changed.
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
	// View returns the request as hooks see it that take another version than the one in which it came: the same View for
	// the same object and version. It is needed when Match names versions.
	View func(o Object, as conversion.ResourceKind) (*View, error)
	// Return returns the object with the change that such a hook made, in the version in which it came: seen is the object
	// of its View, changed what became of it. It is needed by [NewMutate], when Match names versions.
	Return func(o Object, seen, changed []byte) ([]byte, error)
	// Codec applies and makes patches; needed by [NewMutate] only.
	Codec Codec
	// Default returns a patched object, in the version of v, with the defaults that the codec does not know; nil when it
	// knows all.
	Default func(patched []byte, v *View) ([]byte, error)
	// Speculate reports whether a mutating hook may be asked ahead of its turn: behind are the hooks before it that have
	// not answered yet, in their order, and its answer is thrown away if one of them changes the object. It is asked about
	// hooks that have no side effects for the request, again and again until it says yes or the turn of the hook has come.
	// behind belongs to the machine. nil means never.
	Speculate func(h *match.Hook, behind []*match.Hook) bool
	// Deadline is when the answer has to be ready; it bounds all calls together.
	Deadline time.Time
	// Now is the time when a hook has been matched, and the object converted, which may have taken some: that of a call begins
	// then. Patches are timed by it too. nil means that it is what Next was told.
	Now func() time.Time
}

// clock is the time in a step that began at a time: later than that, as matching a hook and applying a patch take some.
func (o *Options) clock(begun time.Time) time.Time {
	if o.Now == nil {
		return begun
	}
	return o.Now()
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
	id       int // of [Call]; -1 until it has one
	hook     *match.Hook
	round    uint32
	mode     review.Mode
	view     *View  // what the hook sees, if it takes another version than that of the request
	seen     []byte // the object as the hook sees it
	state    state
	why      string        // of skipped, and of a call in shadow that was not made
	limit    time.Duration // the time that the hook may take
	deadline time.Time
	until    time.Time // what deadline would be if the call had begun in its turn: that of the next try, should this one fail
	result   review.Result
	patched  bool                           // its patch changed the object
	applying time.Duration                  // what it took to apply its patch
	verbatim bool                           // ... as the caller sent it, so that the patch is good for the caller too
	said     *admissionv1.AdmissionResponse // the verdict of a call that has failed for its patch
	refused  *admissionv1.Status            // of a review that ends for this hook, whatever its policy says
}

// undeclared is the sideEffects of a hook that says nothing about them, and reachedByDryRun why a dry run may not reach it.
const (
	undeclared      = ""
	reachedByDryRun = "Webhook SideEffects is nil: a dry run may not reach a hook that declares none"
)

// begin starts a call, for which the hook may take a time that is within its own timeout and within its share of the
// review's. It reports false when there is none left, and for a dry run that reaches a hook which does not declare its side
// effects, a failure for which its policy decides (SEMANTICS C28): the call has then ended without being made.
func (c *call) begin(o *Options, now time.Time, limit time.Duration) bool {
	if c.hook.SideEffects == undeclared && o.Request.Admission.GetDryRun() {
		c.state = ended
		c.result = review.Fail(review.FailureRefused, reachedByDryRun)
		return false
	}
	c.limit, c.deadline = limit, now.Add(limit)
	c.state = started
	return !c.expire(now)
}

// expire ends a started call whose deadline has passed; it reports whether it did.
func (c *call) expire(now time.Time) bool {
	if c.state != started || now.Before(c.deadline) {
		return false
	}
	c.state = ended
	switch {
	case c.limit <= 0:
		c.result = review.Fail(review.FailureTimeout, "no time left to call it")
	case c.limit < c.hook.Timeout:
		c.result = review.Fail(review.FailureTimeout,
			"no verdict within %s, the time that was left for it (timeout %s)", c.limit, c.hook.Timeout)
	default:
		c.result = review.Fail(review.FailureTimeout, "no verdict in time (timeout %s)", c.hook.Timeout)
	}
	return true
}

// see brings the object into the version that the hook takes. What cannot be converted refuses the review, whatever the
// failure policy (SEMANTICS C21).
func (c *call) see(o *Options, object Object, as *conversion.ResourceKind) *admissionv1.Status {
	c.seen = object.Raw
	if as == nil {
		return nil
	}
	view, err := o.View(object, *as)
	if err != nil {
		return internal("hook %q takes %s, and the object cannot be converted: %v", c.hook.ID.Name, as.Kind.GroupVersion(), err)
	}
	c.view, c.seen = view, view.Object
	return nil
}
