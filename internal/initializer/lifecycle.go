package initializer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// MaxPending bounds the initializers that are pending.
const MaxPending = 64

// NameOf returns the name of a pending initializer, which match.HookID.Pending identifies. Clients see the name alone.
func NameOf(pending string) string { return pending[strings.IndexByte(pending, '/')+1:] }

// Reason is why a change of a staged object is refused.
type Reason uint8

// The reasons of a refusal.
const (
	// Forbidden: the caller may not do this.
	Forbidden Reason = iota + 1
	// Invalid: no caller may do this.
	Invalid
	// Conflict: the object has changed since the caller read it, or is another one.
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

// UpdateRequest is a change of an object, by the caller of Update.
type UpdateRequest struct {
	// ResourceVersion is the version that the change is made from; required.
	ResourceVersion string
	// Object is the object as it should be, as JSON; nil leaves it.
	Object []byte
	// Pending are the names of the initializers as they should be. They have no meaning with a Result.
	Pending []string
	// Result refuses the object; nil does not.
	Result *admissionv1.Status
}

// Rules are the inputs of a decision on a change, beside the object.
type Rules struct {
	// Granted reports whether the caller may act as an initializer, by match.HookID.Pending.
	Granted func(pending string) bool
	// Configured returns the initializers of a name, as match.HookID.Pending has them.
	Configured func(name string) []string
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
		waits = fmt.Sprintf(" and waits for %q", NameOf(there.GetPending()[0]))
	}
	return refuse(Exists, "%s %q already exists: it is being initialized%s", there.GetKey().GetResource().GetResource(), there.GetKey().GetName(), waits)
}

// Update returns an object after the change of a caller, which has to be granted its first pending initializer.
//
// Errors: *RefusedError (Forbidden, Invalid, Conflict).
func Update(o *initializerv1.StagedObject, c UpdateRequest, r Rules) (*initializerv1.StagedObject, error) {
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
	next := staged.Copy(o)
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
	pending, err := pendingAfter(o.GetPending(), c.Pending, r.Configured)
	if err != nil {
		return nil, err
	}
	return await(next, pending, r.Now), nil
}

// failure is the status of a Status that refuses.
const failure = "Failure"

// pendingAfter returns the initializers that are pending after an update to names: those before it, without the first one or with it, and
// others that are configured anywhere behind its place. Where a name could stand for the first one or for another one, the update is one
// that is allowed.
func pendingAfter(before, names []string, configured func(string) []string) ([]string, error) {
	if len(names) > MaxPending {
		return nil, refuse(Invalid, "pending has %d names; at most %d", len(names), MaxPending)
	}
	first, rest := NameOf(before[0]), before[1:]
	if len(names) > 0 && names[0] == first {
		after, err := addBetween(before[:1:1], rest, names[1:], configured)
		if err == nil || !hasName(rest, first) {
			return after, err
		}
	} else if hasName(names, first) && !hasName(rest, first) {
		return nil, outOfPlace(first)
	}
	return addBetween(nil, rest, names, configured)
}

// addBetween appends rest to after, and other initializers where names has them.
func addBetween(after, rest, names []string, configured func(string) []string) ([]string, error) {
	for _, name := range names {
		if len(rest) > 0 && name == NameOf(rest[0]) {
			after, rest = append(after, rest[0]), rest[1:]
			continue
		}
		switch ids := configured(name); {
		case hasName(rest, name):
			return nil, outOfPlace(name)
		case hasName(after, name):
			return nil, refuse(Invalid, "pending: %q is there twice", name)
		case len(ids) == 0:
			return nil, refuse(Invalid, "pending: there is no initializer %q", name)
		case len(ids) > 1:
			return nil, refuse(Invalid, "pending: %q is the name of %d initializers (%s): one of them needs another name", name, len(ids), strings.Join(ids, ", "))
		default:
			after = append(after, ids[0])
		}
	}
	if len(rest) > 0 {
		return nil, refuse(Invalid, "pending: %q is missing: only the first one may be removed", NameOf(rest[0]))
	}
	return after, nil
}

func outOfPlace(name string) error {
	return refuse(Invalid, "pending: %q is out of its place: only the first one may be removed, and the others keep their order", name)
}

// hasName reports whether an initializer of a name is among pending ones.
func hasName(pending []string, name string) bool {
	return slices.ContainsFunc(pending, func(p string) bool { return NameOf(p) == name })
}

// checkObject compares the object before and after an update.
func checkObject(before, after []byte, limit int) error {
	if len(after) > limit {
		return refuse(Invalid, "the object has %d bytes; at most %d", len(after), limit)
	}
	if err := conversion.SameIdentity(before, after); err != nil {
		return refuse(Invalid, "%v", err)
	}
	if err := conversion.CheckText(after); err != nil {
		return refuse(Invalid, "the object has %v", err)
	}
	return nil
}

// Names are the pending initializers of a holder, as they are configured and match, by match.HookID.Pending.
type Names struct {
	// Before are the names that it has staged last.
	Before []string
	// Now starts with the initializer that it asks, and goes on with those behind it.
	Now []string
	// Together is how many of Now it asks at the same time.
	Together int
}

// Sync returns an object as its holder has it when it asks the next initializer: with the content of the chain, and with the names
// that are pending from now on. Initializers ahead of the first name have acted, or their time is over. Names behind it that
// initializers have added stay.
//
// Error: *RefusedError (Conflict) if an initializer has refused the object.
func Sync(o *initializerv1.StagedObject, object []byte, names Names, now time.Time) (*initializerv1.StagedObject, error) {
	if o.GetResult() != nil {
		return nil, refuse(Conflict, "the object is refused already")
	}
	next := staged.Copy(o)
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

// Delete decides whether a caller may end the hold of an object: an operator may, and a caller that is granted a pending
// initializer. An empty uid or resourceVersion means any.
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
	// Waiting: it has not acted, or names that were added before the next one have not.
	Waiting State = iota
	// Initialized: the next one may be asked.
	Initialized
	// Refused: an initializer has set a result.
	Refused
)

// Progress is how far the call of the first of a holder's pending names has come, by the staged object. A later initializer may have
// acted already, since it need not wait for the holder.
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
