package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// lastRound is the number of the reinvocation round; there is at most one (SEMANTICS C5).
const lastRound = 1

// Mutate runs mutating hooks in order on the evolving object: each is matched against, and called with, the object as
// the ones before it left it (SEMANTICS C3). If anything changed, the hooks with reinvocationPolicy IfNeeded whose
// verdict is older than a change are asked once more in a second round (C5 to C8).
type Mutate struct {
	folder
	object  Object
	calls   []*call
	patches []*call // calls whose patch changed the object, in order
	current *call   // started, or ended and not yet applied
	next    int     // index into Hooks
	round   uint32
	// returned is whether the object has been in another version since, and came back with what a hook made of it.
	returned bool
	reinvocation
	start  [1]Call
	cancel [1]Cancel
}

var _ Machine = (*Mutate)(nil)

// NewMutate makes the machine of one mutating review.
func NewMutate(o Options) *Mutate {
	return &Mutate{
		folder: folder{options: &o},
		object: Object{Raw: o.Request.Admission.GetObject().GetRaw()},
		calls:  make([]*call, 0, len(o.Hooks)),
	}
}

// Next implements [Machine].
func (m *Mutate) Next(now time.Time) (start []Call, cancel []Cancel) {
	if m.current != nil && m.current.expire(now) {
		m.cancel[0] = Cancel{len(m.calls) - 1, review.FailureTimeout}
		cancel = m.cancel[:]
	}
	for !m.done {
		switch {
		case m.current == nil && m.next == len(m.options.Hooks):
			m.endRound()
		case m.current == nil:
			start = m.advance(now)
		case m.current.state == started:
			return start, cancel
		default:
			m.apply(m.current)
			m.invoked(m.current.hook)
			m.current = nil
		}
	}
	return nil, cancel
}

// advance matches the next hook of the round and starts it if it applies.
func (m *Mutate) advance(now time.Time) []Call {
	h := m.options.Hooks[m.next]
	m.next++
	c := &call{hook: h, round: m.round}
	m.calls = append(m.calls, c)
	d := m.options.Match(h, m.object)
	if d.Err != nil {
		m.finish(m.calls, c.refuse(matchError(h, d.Err)), nil)
		return nil
	}
	if !d.Match {
		c.state, c.why = skipped, d.Skip
		return nil
	}
	if m.round == lastRound && !m.wants(h) {
		c.state, c.why = skipped, m.unwanted(h)
		return nil
	}
	status := c.see(m.options, m.object, d.As)
	if status == nil {
		status = dryRunConflict(h, m.options.Request.Admission)
	}
	if status != nil {
		m.finish(m.calls, c.refuse(status), nil)
		return nil
	}
	m.current, now = c, m.options.matched(now)
	if !c.begin(m.options, now, m.share(h, now)) {
		return nil
	}
	m.start[0] = Call{
		ID: len(m.calls) - 1, Hook: h, Object: m.object, View: c.view, Round: m.round, Deadline: c.deadline,
	}
	return m.start[:]
}

// share is the part of the time left that a hook may take. While others may come after it, a hook that hangs may not use
// up theirs: it gets half of what is left, or more if its timeout is a greater part of all that are still to run.
// Together they would otherwise be a request that fails although each is fail-open (docs/deviations.md, D9).
func (m *Mutate) share(h *match.Hook, now time.Time) time.Duration {
	left := m.options.Deadline.Sub(now)
	all := h.Timeout
	for _, later := range m.options.Hooks[m.next:] {
		if m.round < lastRound || m.wants(later) {
			all += later.Timeout
		}
	}
	if all <= left || all == h.Timeout {
		return left
	}
	return max(left/2, time.Duration(float64(left)*(float64(h.Timeout)/float64(all))))
}

// Deliver implements [Machine].
func (m *Mutate) Deliver(id int, r review.Result) {
	if m.done || m.current == nil || id != len(m.calls)-1 || m.current.state != started {
		return
	}
	m.current.state, m.current.result = ended, r
}

// apply lets an ended call have its effect.
func (m *Mutate) apply(c *call) {
	switch c.interpret() {
	case denies:
		m.finish(m.calls, denial(c.hook, c.result.Verdict.GetStatus()), nil)
	case fails:
		m.finish(m.calls, failedCall(c), nil)
	case opens:
	case allows:
		if patch := c.result.Verdict.GetPatch(); len(patch) > 0 {
			m.patch(c, patch)
		}
	}
}

// patch applies the patch of a call, with the checks of callAttrMutatingHook in
// k8s.io/apiserver/pkg/admission/plugin/webhook/mutating in their order. A patch that does not apply is a 500 even for a
// fail-open hook (SEMANTICS C21), and so is one for a request without an object, unless it is empty.
func (m *Mutate) patch(c *call, patch []byte) {
	raw, changed, err := m.options.Codec.Apply(c.seen, patch)
	patchType := c.result.Verdict.GetPatchType()
	switch {
	case errors.Is(err, ErrBadPatch):
		m.spoil(c, err)
	case err == nil && !changed && emptyPatch(patch): // nothing is done, and nothing defaulted
	case err != nil && m.object.Raw == nil:
		m.finish(m.calls, c.refuse(internal("hook %q patched a request without an object", c.hook.ID.Name)), nil)
	case patchType != jsonPatch:
		m.spoil(c, fmt.Errorf("unknown patch type %q, want %q", patchType, jsonPatch))
	case err != nil:
		m.finish(m.calls, c.refuse(internal("patch of hook %q does not apply: %v", c.hook.ID.Name, err)), nil)
	default:
		m.adopt(c, raw, changed)
	}
}

// adopt makes what a hook made of the object, with its defaults, the object that the next one sees.
func (m *Mutate) adopt(c *call, raw []byte, changed bool) {
	var err error
	if m.options.Default != nil && raw != nil {
		if raw, err = m.options.Default(raw, c.view); err != nil {
			m.finish(m.calls, c.refuse(internal("what hook %q made of the object cannot be given its defaults: %v", c.hook.ID.Name, err)), nil)
			return
		}
	}
	if !changed && bytes.Equal(raw, c.seen) {
		return
	}
	if c.view != nil {
		if raw, err = m.options.Return(m.object, c.seen, raw); err != nil {
			m.finish(m.calls, c.refuse(internal("the change of hook %q cannot be converted back from %s: %v",
				c.hook.ID.Name, c.view.As.Kind.GroupVersion(), err)), nil)
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
}

// spoil lets a call whose patch cannot be used have the effect of a failed one.
func (m *Mutate) spoil(c *call, err error) {
	c.spoil(err)
	m.apply(c)
}

// emptyPatch reports whether a patch that can be decoded has no operations.
func emptyPatch(patch []byte) bool {
	var operations []json.RawMessage
	return json.Unmarshal(patch, &operations) == nil && len(operations) == 0
}

// endRound goes to the second round if there is something to ask again, or makes the answer. A reinvocation by the API
// server is a second round already.
func (m *Mutate) endRound() {
	again := m.options.Request.Stage != admissionv1.Stage_STAGE_REINVOKE
	if again && m.round < lastRound && len(m.patches) > 0 {
		m.round, m.next = lastRound, 0
		return
	}
	patch, err := m.patchOfAll()
	var status *admissionv1.Status
	if err != nil {
		status = internal("the changes of the mutating hooks cannot be expressed as one patch: %v", err)
	}
	m.finish(m.calls, status, patch)
	if status == nil {
		m.answer.Object = m.object.Raw
	}
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

// Outcomes implements [Machine].
func (m *Mutate) Outcomes() iter.Seq[Outcome] { return outcomesOf(m.calls) }

// Wake implements [Machine].
func (m *Mutate) Wake() time.Time {
	if m.current == nil || m.current.state != started {
		return time.Time{}
	}
	return m.current.deadline
}

// reinvocation keeps which hooks have to be asked again, by the rules of webhookReinvokeContext in
// k8s.io/apiserver/pkg/admission/plugin/webhook/mutating. In the second round a hook is matched before it is looked up
// here, as upstream, so that a matching error is never missed.
type reinvocation struct {
	pending []*match.Hook // IfNeeded hooks that were called and saw every change so far
	flagged []*match.Hook // IfNeeded hooks that were called before a change
}

// changed takes note of a change: all that were called before are flagged.
func (r *reinvocation) changed() {
	r.flagged = append(r.flagged, r.pending...)
	r.pending = r.pending[:0]
}

// invoked takes note that a hook was called and its change, if any, recorded: a later change will flag it.
func (r *reinvocation) invoked(h *match.Hook) {
	if h.Reinvocation == admissionregistrationv1.IfNeededReinvocationPolicy {
		r.pending = append(r.pending, h)
	}
}

// wants reports whether a hook has to be asked again.
func (r *reinvocation) wants(h *match.Hook) bool { return slices.Contains(r.flagged, h) }

// unwanted says why a hook is not asked again.
func (r *reinvocation) unwanted(h *match.Hook) string {
	switch {
	case h.Reinvocation != admissionregistrationv1.IfNeededReinvocationPolicy:
		return "its reinvocationPolicy is Never"
	case !slices.Contains(r.pending, h):
		return "it was not called in the first round"
	}
	return "nothing changed since it was called"
}
