// Package chain decides what happens to a review once its candidates are known: which hook is called with which object, what
// each result means, and what the answer is. Mutating hooks are called in series on the evolving object, validating hooks
// concurrently.
//
// Both are state machines without goroutine, clock or I/O: the dispatcher asks [Machine.Next] which calls to start and to
// cancel, passes results to [Machine.Deliver] and the time to Next, until [Machine.Answer] returns an answer. A machine
// belongs to one review and to one goroutine. Failure policies and timeouts are in failure_policy.go.
package chain

import (
	"iter"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Object is the object of a review with the changes of the hooks so far.
type Object struct {
	// Raw is the JSON, nil when the review has no object (DELETE). It is never written.
	Raw []byte
	// Revision counts the changes by hooks; 0 is the object that the API server sent.
	Revision uint32
}

// View is a request in the version that a hook takes. It is never written.
type View struct {
	// As is the version.
	As conversion.ResourceKind
	// Object and OldObject are the objects in that version; nil if the request has none.
	Object, OldObject []byte
}

// Call is a call that the dispatcher has to start.
type Call struct {
	// ID is unique in the review.
	ID int
	// Hook is the hook to call.
	Hook *match.Hook
	// Object is the object in the version of the request.
	Object Object
	// View is the request in the version that the hook takes; nil if that is the version of the request.
	View *View
	// Round is 0, or 1 for a reinvocation.
	Round uint32
	// Mode is the reason of the call. Results of shadow calls are not delivered.
	Mode review.Mode
	// Deadline is the time from which on a verdict is too late.
	Deadline time.Time
}

// Cancel is a call whose result is no longer wanted.
type Cancel struct {
	// ID is that of the call.
	ID int
	// Kind is FailureTimeout, or FailureCancelled if the answer does not depend on the call any more.
	Kind review.FailureKind
}

// Machine is the decision part of one review.
type Machine interface {
	// Next returns the calls to start and to cancel. It is called first, after each Deliver, and at [Machine.Wake]. The slices
	// are valid until the next call of Next. Once there is an answer, it returns shadow calls at most, and the calls that
	// were started in the step that led to the answer.
	//
	// A hook may be called more than once in a round, but has at most one outstanding call (neither delivered nor cancelled)
	// that is not a shadow call: there are never more such calls than hooks.
	Next(now time.Time) (start []Call, cancel []Cancel)
	// Deliver passes the result of a call. The result of a cancelled call is ignored.
	Deliver(id int, r review.Result)
	// Wake returns the time at which Next has to be called even without a result; zero if no call is outstanding.
	Wake() time.Time
	// Answer returns the answer once there is one. It does not change.
	Answer() (review.Answer, bool)
	// Outcomes returns the outcome so far of each hook in each round, in order, including skipped hooks, followed by the
	// speculative calls that do not count.
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
	// Match decides whether a hook applies to an object.
	Match func(h *match.Hook, object Object) match.Decision
	// View returns the request in a version other than its own: the same pointer for the same object and version. It is
	// needed if a Decision of Match names a version.
	View func(o Object, as conversion.ResourceKind) (*View, error)
	// Rebase applies the change of such a hook to the object in the version of the request: seen is the object of its View,
	// changed the same after its patch. It is needed by [NewMutate] if a Decision of Match names a version.
	Rebase func(o Object, seen, changed []byte) ([]byte, error)
	// Codec applies and makes patches; needed by [NewMutate] only.
	Codec Codec
	// Default adds defaults that the codec does not know to a patched object in the version of v; nil means none.
	Default func(patched []byte, v *View) ([]byte, error)
	// Speculate reports whether a mutating hook may be called before its turn. behind are the earlier hooks without a verdict,
	// in order: if one of them changes the object, the call is discarded. Speculate is called only for hooks without side
	// effects for the request, at each step until it returns true or it is the hook's turn. behind must not be kept or
	// written. nil means no speculation.
	Speculate func(h *match.Hook, behind []*match.Hook) bool
	// Deadline is the deadline of the answer, and of all calls together.
	Deadline time.Time
	// Now returns the time after a hook was matched or a patch was applied, which may take long within one step: the time of
	// a call begins then. nil means the time that was passed to Next.
	Now func() time.Time
}

// timeNow returns the current time in a step that began at begun.
func (o *Options) timeNow(begun time.Time) time.Time {
	if o.Now == nil {
		return begun
	}
	return o.Now()
}

// state is the state of a call: idle, then skipped or started, then ended or abandoned.
type state uint8

const (
	idle      state = iota // not matched, or not started yet
	skipped                // the hook does not apply
	started                // outstanding
	ended                  // result is set
	abandoned              // cancelled; its result is ignored
)

// call is one hook in one round.
type call struct {
	id              int // Call.ID; -1 until assignID
	hook            *match.Hook
	round           uint32
	mode            review.Mode
	view            *View  // nil: the version of the request
	input           []byte // the object in the version that the hook takes
	state           state
	reason          string        // of a skipped call, and of a shadow call that cannot be made
	limit           time.Duration // how long the hook may take
	deadline        time.Time
	turnDeadline    time.Time // of a speculative call: the deadline counted from its turn, for callAgain
	result          review.Result
	patched         bool                           // the patch changed the object
	applying        time.Duration                  // time to apply the patch
	verbatim        bool                           // the patch applies to the object that the caller sent
	replacedVerdict *admissionv1.AdmissionResponse // set by failPatch
	refused         *admissionv1.Status            // refuses the review whatever the failure policy
}

// convert sets the input of the hook: the object, or its view in the version that the hook takes. It returns the status that
// refuses the review, whatever the failure policy, if the object cannot be converted (SEMANTICS C21).
func (c *call) convert(o *Options, object Object, as *conversion.ResourceKind) *admissionv1.Status {
	c.input = object.Raw
	if as == nil {
		return nil
	}
	view, err := o.View(object, *as)
	if err != nil {
		return internal("hook %q takes %s, and the object cannot be converted: %v", c.hook.ID.Name, as.Kind.GroupVersion(), err)
	}
	c.view, c.input = view, view.Object
	return nil
}
