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

// patch applies the patch of a call, with the checks of callAttrMutatingHook in
// k8s.io/apiserver/pkg/admission/plugin/webhook/mutating in their order. A patch that does not apply is a 500 even for a
// fail-open hook (SEMANTICS C21), and so is one for a request without an object, unless it is empty.
func (m *Mutate) patch(c *call, patch []byte) {
	begun := m.options.clock(m.now)
	raw, changed, err := m.options.Codec.Apply(c.seen, patch)
	c.applying = m.options.clock(begun).Sub(begun)
	patchType := c.result.Verdict.GetPatchType()
	kind, unusable := failureOf(err)
	switch {
	case unusable:
		m.spoil(c, kind, err)
	case err == nil && !changed && emptyPatch(patch): // nothing is done, and nothing defaulted
	case err != nil && m.object.Raw == nil:
		m.fail(m.calls, c.refuse(internal("hook %q attempted to modify the object, which is not supported for this operation", c.hook.ID.Name)))
	case patchType != jsonPatch:
		m.spoil(c, review.FailureBadAnswer, fmt.Errorf("unsupported patch type %q, want %q", patchType, jsonPatch))
	case err != nil:
		m.fail(m.calls, c.refuse(internal("patch of hook %q does not apply: %v", c.hook.ID.Name, err)))
	default:
		m.adopt(c, raw, changed)
	}
}

// adopt makes what a hook made of the object, with its defaults, the object that the next one sees.
func (m *Mutate) adopt(c *call, raw []byte, changed bool) {
	var err error
	if m.options.Default != nil && raw != nil {
		if raw, err = m.options.Default(raw, c.view); err != nil {
			m.fail(m.calls, c.refuse(internal("what hook %q made of the object cannot be given its defaults: %v", c.hook.ID.Name, err)))
			return
		}
	}
	if !changed && bytes.Equal(raw, c.seen) {
		return
	}
	if c.view != nil {
		if raw, err = m.options.Return(m.object, c.seen, raw); err != nil {
			m.fail(m.calls, c.refuse(internal("the change of hook %q cannot be converted back from %s: %v",
				c.hook.ID.Name, c.view.As.Kind.GroupVersion(), err)))
			return
		}
		m.returned = true
	}
	if changed {
		c.patched = true
		c.verbatim = c.view == nil && m.object.Revision == 0
		m.patches = append(m.patches, c)
		m.changed()
	}
	m.object = Object{Raw: raw, Revision: m.object.Revision + 1}
	m.forget()
}

// failureOf tells the patches that are no answer of their hook, so that its failure policy decides: those that cannot be decoded or
// are past a limit, those whose time is over before they are applied, and those for which there is no memory.
func failureOf(err error) (kind review.FailureKind, ok bool) {
	var full *memory.FullError
	switch {
	case errors.Is(err, ErrBadPatch):
		return review.FailureBadAnswer, true
	case errors.Is(err, conversion.ErrStopped):
		return review.FailureTimeout, true
	case errors.As(err, &full):
		return review.FailureOverload, true
	}
	return 0, false
}

// spoil lets a call whose patch cannot be used have the effect of a failed one.
func (m *Mutate) spoil(c *call, kind review.FailureKind, err error) {
	c.spoil(kind, err)
	m.apply(c)
}

// emptyPatch reports whether a patch that can be decoded has no operations.
func emptyPatch(patch []byte) bool {
	var operations []json.RawMessage
	return json.Unmarshal(patch, &operations) == nil && len(operations) == 0
}

// patchOfAll is the patch that leads from the request's object to the last one: that of the only hook that changed it
// verbatim, if the hook saw what the caller has, or the difference. What a patch that is no change adds is known to the
// caller, unless the hook saw another version: then it has that version's defaults.
func (m *Mutate) patchOfAll() ([]byte, error) {
	switch {
	case len(m.patches) == 0 && !m.returned:
		return nil, nil
	case len(m.patches) == 1 && m.patches[0].verbatim && !m.returned:
		return m.patches[0].result.Verdict.GetPatch(), nil
	}
	return m.options.Codec.Diff(m.options.Request.Admission.GetObject().GetRaw(), m.object.Raw)
}
