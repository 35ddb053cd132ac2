package initializer

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

// MaxPending bounds the names that are pending.
const MaxPending = 64

// Reason is why a change of a staged object is refused.
type Reason uint8

// The reasons of a refusal.
const (
	// Forbidden: the caller may not do this.
	Forbidden Reason = iota + 1
	// Invalid: no caller may do this.
	Invalid
	// Conflict: the object is not the one that the caller has seen.
	Conflict
	// Exists: another review of this object is held.
	Exists
)

// RefusedError is the error of a change that the life cycle does not allow.
type RefusedError struct {
	// Reason classifies the refusal.
	Reason Reason
	// Message explains it, for the caller.
	Message string
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Message }

func refuse(reason Reason, format string, args ...any) error {
	return &RefusedError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Change is the wish of the caller of an Update.
type Change struct {
	// ResourceVersion is the version that the change is made from; required.
	ResourceVersion string
	// Object is the object as it should be, as JSON; nil leaves it.
	Object []byte
	// Pending are the names as they should be. They have no meaning with a Result.
	Pending []string
	// Result refuses the object; nil does not.
	Result *admissionv1.Status
}

// Rules are what a change is judged by, beside the object.
type Rules struct {
	// Granted reports whether the caller may act as an initializer.
	Granted func(name string) bool
	// Configured reports whether there is an initializer of a name.
	Configured func(name string) bool
	// MaxObjectBytes bounds the object, as JSON.
	MaxObjectBytes int
	// Now is the time.
	Now time.Time
}

// Create decides whether a hold of a review may begin, given the object that is staged under its key. It may if nothing is there (nil),
// or if that is of the same review, which came by another dispatcher before: that one is to be deleted first.
//
// Error: *RefusedError (Exists).
func Create(there *initializerv1.StagedObject, reviewUID string) error {
	if there == nil || reviewUID != "" && there.GetReviewUid() == reviewUID {
		return nil
	}
	waits := ""
	if len(there.GetPending()) > 0 {
		waits = fmt.Sprintf(" and waits for %q", there.GetPending()[0])
	}
	return refuse(Exists, "%s %q already exists: it is being initialized%s", there.GetKey().GetResource().GetResource(), there.GetKey().GetName(), waits)
}

// Update returns an object after the change of a caller, which has to be granted its first pending initializer.
//
// Errors: *RefusedError (Forbidden, Invalid, Conflict).
func Update(o *initializerv1.StagedObject, c Change, r Rules) (*initializerv1.StagedObject, error) {
	switch {
	case c.ResourceVersion == "":
		return nil, refuse(Invalid, "a change needs the resource version that it is made from")
	case len(o.GetPending()) == 0 || !r.Granted(o.GetPending()[0]):
		return nil, refuse(Forbidden, "only the first pending initializer may change the object, and the caller is not it")
	case c.ResourceVersion != o.GetResourceVersion():
		return nil, refuse(Conflict, "the object has changed: it has resource version %s, not %s", o.GetResourceVersion(), c.ResourceVersion)
	case o.GetResult() != nil:
		return nil, refuse(Conflict, "the object is refused already")
	}
	next := with(o)
	if c.Object != nil {
		if err := checkObject(o.GetObject().GetRaw(), c.Object, r.MaxObjectBytes); err != nil {
			return nil, err
		}
		next.Object = &admissionv1.Object{ContentType: o.GetObject().GetContentType(), Raw: c.Object}
	}
	if c.Result != nil {
		if c.Result.GetStatus() != failure {
			return nil, refuse(Invalid, "result.status is %q: only a result that is a %q can be set", c.Result.GetStatus(), failure)
		}
		next.Result = c.Result
		return next, nil
	}
	if err := checkPending(o.GetPending(), c.Pending, r.Configured); err != nil {
		return nil, err
	}
	return await(next, c.Pending, r.Now), nil
}

// failure is the status of a Status that refuses.
const failure = "Failure"

// checkPending compares the pending names before and after an update.
func checkPending(before, after []string, configured func(string) bool) error {
	if len(after) > MaxPending {
		return refuse(Invalid, "pending has %d names; at most %d", len(after), MaxPending)
	}
	rest := before[1:]
	if len(after) > 0 && after[0] == before[0] {
		after = after[1:]
	}
	for i, name := range after {
		switch {
		case len(rest) > 0 && name == rest[0]:
			rest = rest[1:]
		case slices.Contains(before, name):
			return refuse(Invalid, "pending: %q is out of its place: only the first one may be removed, and the others keep their order", name)
		case slices.Contains(after[:i], name):
			return refuse(Invalid, "pending: %q is there twice", name)
		case !configured(name):
			return refuse(Invalid, "pending: there is no initializer %q", name)
		}
	}
	if len(rest) > 0 {
		return refuse(Invalid, "pending: %q is missing: only the first one may be removed", rest[0])
	}
	return nil
}

// checkObject compares the object before and after an update.
func checkObject(before, after []byte, limit int) error {
	if len(after) > limit {
		return refuse(Invalid, "the object has %d bytes; at most %d", len(after), limit)
	}
	if err := conversion.SameIdentity(before, after); err != nil {
		return refuse(Invalid, "%v", err)
	}
	return nil
}

// Names are the pending initializers of a holder, as they are configured and match.
type Names struct {
	// Before are those that it has staged last.
	Before []string
	// Now are the one that it asks, and those behind it.
	Now []string
	// Together is how many of Now it asks at the same time.
	Together int
}

// Sync returns an object as its holder has it when it asks the next initializer: with the content of the chain, and with the names
// that are pending from now on. What stands ahead of the first of them has acted, or its time is over; names behind it that
// initializers have added stay.
//
// Error: *RefusedError (Conflict) if an initializer has refused the object.
func Sync(o *initializerv1.StagedObject, object []byte, names Names, now time.Time) (*initializerv1.StagedObject, error) {
	if o.GetResult() != nil {
		return nil, refuse(Conflict, "the object is refused already")
	}
	next := with(o)
	next.Object = &admissionv1.Object{ContentType: o.GetObject().GetContentType(), Raw: object}
	next = await(next, merge(o.GetPending(), names), now)
	next.Together = uint32(names.Together)
	return next, nil
}

// Acted reports whether the initializer that a holder is about to ask has acted already: it need not wait for the holder.
func Acted(o *initializerv1.StagedObject, names Names) bool {
	return slices.Contains(names.Before, names.Now[0]) && !slices.Contains(o.GetPending(), names.Now[0])
}

// merge returns the pending names of a holder with those that initializers have added behind the first of them.
func merge(staged []string, names Names) []string {
	var out []string
	added := func() bool {
		return len(staged) > 0 && !slices.Contains(names.Before, staged[0]) && !slices.Contains(names.Now, staged[0])
	}
	for _, name := range names.Now {
		out = append(out, name)
		i := slices.Index(staged, name)
		if i < 0 {
			continue
		}
		for staged = staged[i+1:]; added(); {
			out, staged = append(out, staged[0]), staged[1:]
		}
	}
	return out
}

// Deleter describes a caller that wants to delete a staged object.
type Deleter struct {
	// Granted reports whether the caller may act as an initializer.
	Granted func(name string) bool
	// Operator is whether the caller may delete any.
	Operator bool
}

// Delete decides whether a caller may end the hold of an object: one that is granted a pending initializer, or an operator. An empty uid
// or resourceVersion means any.
//
// Errors: *RefusedError (Forbidden, Conflict).
func Delete(o *initializerv1.StagedObject, uid, resourceVersion string, who Deleter) error {
	switch {
	case !who.Operator && !slices.ContainsFunc(o.GetPending(), who.Granted):
		return refuse(Forbidden, "the caller is granted none of the pending initializers")
	case uid != "" && uid != o.GetUid():
		return refuse(Conflict, "the object has uid %s, not %s", o.GetUid(), uid)
	case resourceVersion != "" && resourceVersion != o.GetResourceVersion():
		return refuse(Conflict, "the object has resource version %s, not %s", o.GetResourceVersion(), resourceVersion)
	}
	return nil
}

// State is how far the call of an initializer has come.
type State uint8

// The states of a call.
const (
	// Waiting: it has not acted, or those that were added before the next one have not.
	Waiting State = iota
	// Initialized: the next one may be asked.
	Initialized
	// Refused: an initializer has set a result.
	Refused
)

// Progress is how far the call of the first of the pending names of a holder has come, by the staged object. One of the others may
// have acted already, since it need not wait for the holder.
func Progress(o *initializerv1.StagedObject, pending []string) State {
	switch staged := o.GetPending(); {
	case o.GetResult() != nil:
		return Refused
	case len(staged) == 0, slices.Contains(pending[1:], staged[0]):
		return Initialized
	}
	return Waiting
}

// await sets the pending names, and since when the first of them is waited for. A new first one is asked alone.
func await(o *initializerv1.StagedObject, pending []string, now time.Time) *initializerv1.StagedObject {
	if len(pending) > 0 && (len(o.GetPending()) == 0 || o.GetPending()[0] != pending[0]) {
		o.Waiting, o.Together = timestamppb.New(now), 0
	}
	o.Pending = pending
	return o
}

// with returns a copy of an object for changes of its fields. It shares the messages below them.
func with(o *initializerv1.StagedObject) *initializerv1.StagedObject {
	return &initializerv1.StagedObject{
		Key: o.GetKey(), Uid: o.GetUid(), ResourceVersion: o.GetResourceVersion(), Pending: o.GetPending(), Result: o.GetResult(),
		Creator: o.GetCreator(), Object: o.GetObject(), RemainingMs: o.GetRemainingMs(), Kind: o.GetKind(), Created: o.GetCreated(),
		Waiting: o.GetWaiting(), ReviewUid: o.GetReviewUid(), DispatcherId: o.GetDispatcherId(), Expires: o.GetExpires(),
		Together: o.GetTogether(),
	}
}
