package conversion

import (
	"errors"
	"fmt"
)

// maxCopiedBytes is how much the copy operations of one patch may add to an object: the default of kube-apiserver
// (Config.JSONPatchMaxCopyBytes of k8s.io/apiserver/pkg/server).
const maxCopiedBytes = 3 << 20

// MaxPatchOperations is how many operations a patch may have: as many as kube-apiserver takes from a client
// (maxJSONPatchOperations of k8s.io/apiserver/pkg/endpoints/handlers).
const MaxPatchOperations = 10_000

// ErrUndecodable means that a patch is no JSON patch, or past a limit (MaxPatchOperations, MaxPatchWork): the hook gave no usable answer, and its
// failure policy applies (SEMANTICS C20). kube-apiserver has the same text.
var ErrUndecodable = errors.New("received undecodable patch in webhook response")

// ErrInapplicable means that a patch cannot be applied to the object: an error of the request whatever the failure policy
// (SEMANTICS C21). Errors that match it have the text of their cause alone.
var ErrInapplicable = errors.New("conversion: patch does not apply")

// ErrTestFailed means that a test operation of a patch found another value. It is an ErrInapplicable.
var ErrTestFailed = errors.New("test failed")

// inapplicableError is an ErrInapplicable.
type inapplicableError struct{ error }

// Is implements errors.Is.
func (inapplicableError) Is(target error) bool { return target == ErrInapplicable }

// Unwrap implements errors.Unwrap.
func (e inapplicableError) Unwrap() error { return e.error }

func inapplicable(format string, args ...any) error {
	return inapplicableError{fmt.Errorf(format, args...)}
}

// Patched is the result of a patch.
type Patched struct {
	// Raw is the object: the argument itself when nothing changed.
	Raw []byte
	// Changed is true when the object is another one now, as Kubernetes compares objects without a type: white space, order of
	// members, escapes and the spelling of fractions do not count.
	Changed bool
}

// ApplyPatch applies an RFC 6902 patch as kube-apiserver does (callAttrMutatingHook of
// k8s.io/apiserver/pkg/admission/plugin/webhook/mutating); an empty patch, [] and null change nothing. object is the raw
// JSON of an object and is not written; nil, when the request has none, takes no patch. The error matches ErrUndecodable or
// ErrInapplicable.
func ApplyPatch(object, patch []byte) (Patched, error) {
	e, err := applyPatch(nil, object, patch)
	return e.Patched, err
}

// patchEffect is an object before and after a patch. There are none without an operation.
type patchEffect struct {
	Patched
	from, to node
}

// applyPatch is ApplyPatch within an allowance.
func applyPatch(a Allowance, object, patch []byte) (e patchEffect, err error) {
	raw, applied, err := Patch(a, object, patch)
	if err != nil || !applied {
		return patchEffect{Patched: Patched{Raw: raw}}, err
	}
	after := ExtentOf(raw).Tree()
	if err := grow(a, after); err != nil {
		return patchEffect{}, err
	}
	defer shrink(a, after)
	if e.from, err = parseObject(object); err != nil {
		return patchEffect{}, inapplicable("read the object: %w", err)
	}
	if e.to, err = parseObject(raw); err != nil {
		return patchEffect{}, inapplicable("read the patched object: %w", err)
	}
	e.Patched = Patched{Raw: raw, Changed: true}
	if equal(&e.from, &e.to) {
		e.Patched = Patched{Raw: object}
	}
	return e, nil
}

// Patch is ApplyPatch for a caller that finds out on its own whether the result is another object. applied is
// whether the patch has any operation; if not, the result is the object itself. The error wraps ErrStopped when the time of the
// allowance, which may be nil, is over. Memory is the caller's to book.
func Patch(a Allowance, object, patch []byte) (result []byte, applied bool, err error) {
	if len(patch) == 0 {
		return object, false, nil
	}
	operations, err := decodePatch(patch)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("%w: %w", ErrUndecodable, err)
	case len(operations) == 0:
		return object, false, nil
	case len(object) == 0:
		return nil, false, inapplicable("the request carries no object that could be changed")
	}
	switch result, err = applyOperations(a, object, operations); {
	case err == nil:
		return result, true, nil
	case errors.Is(err, ErrUndecodable), errors.Is(err, ErrStopped):
		return nil, false, err
	default:
		return nil, false, inapplicable("%w", err)
	}
}
