package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// applyPatch applies the patch of a call, with the checks of callAttrMutatingHook in
// k8s.io/apiserver/pkg/admission/plugin/webhook/mutating in the same order. A patch that does not apply refuses the review
// with 500 even for a fail-open hook (SEMANTICS C21), and so does a patch for a request without an object, unless it is empty.
func (m *Mutate) applyPatch(c *call, patch []byte) {
	begun := m.options.timeNow(m.now)
	raw, changed, err := m.options.Codec.Apply(c.input, patch)
	if err == nil && changed && c.Hook.Initializes() {
		raw, changed, err = m.options.Codec.Initialized(c.input, m.object.Raw, raw)
	}
	c.applying = m.options.timeNow(begun).Sub(begun)
	patchType := c.result.Verdict.GetPatchType()
	kind, unusable := patchFailure(err)
	var conflict *conversion.ConflictError
	switch {
	case errors.As(err, &conflict):
		m.fail(c.refuse(m.conflicts(c, conflict)))
	case errors.Is(err, ErrBadPatch) && patchType != jsonPatch:
		m.failPatch(c, kind, unsupported(patchType, err))
	case unusable:
		m.failPatch(c, kind, err)
	case err == nil && !changed && emptyPatch(patch): // no change, and no defaults
	case err != nil && m.object.Raw == nil:
		m.fail(c.refuse(internal("hook %q attempted to modify the object, which is not supported for this operation", c.Hook.ID.Name)))
	case patchType != jsonPatch:
		m.failPatch(c, review.FailureBadAnswer, unsupported(patchType, err))
	case err != nil:
		m.fail(c.refuse(internal("patch of hook %q does not apply: %v", c.Hook.ID.Name, err)))
	default:
		m.adoptObject(c, raw, changed)
	}
}

// unsupported returns why a patch of another type is none, with the reason for which it is no JSON patch either, if there is one.
func unsupported(patchType string, err error) error {
	if errors.Is(err, ErrBadPatch) {
		return fmt.Errorf("unsupported patch type %q, want %q: %w", patchType, jsonPatch, err)
	}
	return fmt.Errorf("unsupported patch type %q, want %q", patchType, jsonPatch)
}

// adoptObject makes a patched object, with defaults and in the version of the request, the object for the next hooks.
func (m *Mutate) adoptObject(c *call, raw []byte, changed bool) {
	var err error
	if raw != nil {
		if raw, err = m.options.Subject.Default(raw, c.view); err != nil {
			m.fail(c.refuse(internal("the object that hook %q returned cannot be given its defaults: %v", c.Hook.ID.Name, err)))
			return
		}
	}
	if !changed && (bytes.Equal(raw, c.input) || c.Hook.Batch != 0) { // defaults alone would undo the changes of others
		return
	}
	if c.view != nil {
		if raw, err = m.options.Subject.Rebase(m.object, c.input, raw); err != nil {
			m.fail(c.refuse(internal("the change of hook %q cannot be converted back from %s: %v",
				c.Hook.ID.Name, c.view.As.Kind.GroupVersion(), err)))
			return
		}
		m.rebased = true
	}
	if changed {
		c.patched = true
		c.verbatim = c.view == nil && m.object.Revision == 0 && conversion.CheckText(c.result.Verdict.GetPatch()) == nil
		m.patches = append(m.patches, c)
		m.objectChanged()
	}
	m.object = Object{Raw: raw, Revision: m.object.Revision + 1}
	m.discardAhead()
}

// patchFailure returns the kind of failure for a patch error for which the failure policy decides: the patch cannot be decoded or exceeds a limit, it
// changes a field that an initializer may not change, its time is over, or there is no memory to apply it. It returns false for other errors.
func patchFailure(err error) (kind review.FailureKind, ok bool) {
	var full *memory.FullError
	var immutable *conversion.ImmutableError
	switch {
	case errors.Is(err, ErrBadPatch), errors.As(err, &immutable):
		return review.FailureBadAnswer, true
	case errors.Is(err, conversion.ErrStopped):
		return review.FailureTimeout, true
	case errors.As(err, &full):
		return review.FailureOverload, true
	}
	return 0, false
}

// failPatch makes a call whose patch cannot be used a failure, and applies that.
func (m *Mutate) failPatch(c *call, kind review.FailureKind, err error) {
	c.failPatch(kind, err)
	m.applyResult(c)
}

func emptyPatch(patch []byte) bool {
	var operations []json.RawMessage
	return json.Unmarshal(patch, &operations) == nil && len(operations) == 0
}

// combinedPatch returns the patch from the object of the request to the current object. If a single hook changed the object and its patch applies to
// the object of the caller, it is the hook's patch; else the difference. Defaults alone make no patch, since the caller adds them itself; after a
// hook of another version (rebased) they may be the defaults of that version, and are part of the difference.
func (m *Mutate) combinedPatch() ([]byte, error) {
	switch {
	case len(m.patches) == 0 && !m.rebased:
		return nil, nil
	case len(m.patches) == 1 && m.patches[0].verbatim && !m.rebased:
		return m.patches[0].result.Verdict.GetPatch(), nil
	}
	return m.options.Codec.Diff(m.options.Request.Admission.GetObject().GetRaw(), m.object.Raw)
}
