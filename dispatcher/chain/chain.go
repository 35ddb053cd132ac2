// Package chain decides a review once its candidates are known: which hook is called with which object, how each result counts, and how the review is
// answered. Mutating hooks are called in series on the evolving object, validating hooks concurrently.
//
// Both are state machines without goroutine, clock or I/O: the dispatcher asks [Machine.Next] which calls to start and to cancel, passes results to
// [Machine.Deliver] and the time to Next, until [Machine.Answer] returns an answer. A machine belongs to one review and to one goroutine. Failure
// policies and timeouts are in failure_policy.go.
package chain

import (
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Object is the object of a review with the changes of the hooks so far.
type Object struct {
	// Raw is the JSON; nil if the review has no object (DELETE). It is never written.
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

// Start is a call to start.
type Start struct {
	review.Call

	// Object is the object in the version of the request.
	Object Object
	// View is the request in the version that the hook takes; nil if that is the version of the request.
	View *View
}

// Machine is the decision part of one review.
type Machine interface {
	// Next returns the calls to start, and the ids of those to cancel. It is called first, after each Deliver, and at [Machine.Wake]. The slices
	// are valid until the next call of Next. Once there is an answer, it returns shadow calls at most, and the calls that
	// were started in the step that led to the answer.
	//
	// A hook may be called more than once in a round, but has at most one outstanding call (neither delivered nor cancelled)
	// that is not a shadow call: there are never more such calls than hooks.
	Next(now time.Time) (start []Start, cancel []int)
	// Deliver passes the result of a call. The result of a cancelled call is ignored.
	Deliver(id int, r review.Result)
	// Wake returns the time at which Next has to be called even without a result; zero if no call is outstanding.
	Wake() time.Time
	// Answer returns the answer once there is one. It does not change.
	Answer() (review.Answer, bool)
	// Outcomes returns the outcomes so far.
	Outcomes() Outcomes
}

// Codec changes and compares the objects of one review. It belongs to the goroutine of the review, and may remember the objects that it returned:
// objects are never written.
type Codec interface {
	// Apply applies a JSON patch to an object and returns the object for the next hook. The object is nil if the request has
	// none: only an empty patch applies then. The error matches [ErrBadPatch] if the patch cannot be decoded or exceeds a limit
	// (SEMANTICS C20), matches [conversion.ErrStopped] or is a [memory.FullError] if there is no time or memory, and is any
	// other if the patch does not apply (C21). changed means that earlier hooks have to be called again (C10): it is false if
	// only defaults were added, or the same values are written differently.
	Apply(object, patch []byte) (result []byte, changed bool, err error)
	// Initialized applies the change of an initializer, base to result, to current. Other initializers made current of base at the same time. changed
	// is false if current has that change. The error is a [conversion.ImmutableError], a [conversion.ConflictError], a [memory.FullError], or says
	// that an argument is not JSON.
	Initialized(base, current, result []byte) (merged []byte, changed bool, err error)
	// Diff returns the JSON patch that leads from one object to another.
	Diff(from, to []byte) ([]byte, error)
}

// Subject matches hooks with the object of a review, and converts that object. It belongs to the goroutine of the review.
type Subject interface {
	// Match decides whether a hook applies to an object.
	Match(h *match.Hook, o Object) match.Decision
	// View returns the request in another version, if a [match.Decision] names one: the same pointer for the same object and
	// version.
	View(o Object, as conversion.ResourceKind) (*View, error)
	// Rebase applies the change of a hook that takes another version to the object in the version of the request: seen is the
	// object of its View, changed the same after its patch.
	Rebase(o Object, seen, changed []byte) ([]byte, error)
	// Default adds defaults that the codec does not know to a patched object in the version of v.
	Default(patched []byte, v *View) ([]byte, error)
}

// Options are the inputs of a machine.
type Options struct {
	// Request is the review.
	Request *review.Request
	// Revision is the digest of the configuration that judges.
	Revision string
	// Object is the object that the hooks begin with: the request's object without the fields that address the mesh. The patch of the answer removes
	// those fields too. nil means the request's object.
	Object []byte
	// Refuse, if set, is the answer, and no mutating hook is called.
	Refuse *admissionv1.Status
	// Hooks are the candidates, in order: hooks of the stage whose rules may match.
	Hooks []*match.Hook
	// Subject matches hooks and converts objects.
	Subject Subject
	// Codec applies and makes patches; needed by [NewMutate] only.
	Codec Codec
	// Speculate reports whether a mutating hook may be called before its turn. behind are the earlier hooks without a verdict, in order: if any of
	// them changes the object, the call is discarded. Speculate is called only for hooks without side effects for the request, at each step until it
	// returns true or it is the hook's turn. behind must not be kept or written. nil means no speculation.
	Speculate func(h *match.Hook, behind []*match.Hook) bool
	// Spent ends an outstanding call whose time is over, by its id, and returns where that went. nil means that the time is not known.
	Spent func(id int) review.Timing
	// TraceID is the trace of the review; not valid without one.
	TraceID trace.TraceID
	// FailOpen lets the review go on without a verdict of a hook, whatever the failure policy of the hook.
	FailOpen bool
	// Deadline is the deadline of the answer, and of all calls together.
	Deadline time.Time
	// Certain is the deadline of calls that may fail open: from then on the caller may have gone. A call that fails closed goes on, as the
	// request is refused in any case without its verdict. Zero means Deadline.
	Certain time.Time
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
