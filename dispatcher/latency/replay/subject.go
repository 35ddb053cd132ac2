package replay

import (
	"bytes"
	"errors"
	"slices"
	"strconv"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

var errPatch = errors.New("the patch did not apply")

// Match implements [chain.Subject]: a hook applies if the record has a call of it. Of the hooks that a review did not reach, those apply
// that like reviews call.
func (p *play) Match(h *match.Hook, _ chain.Object) match.Decision {
	hook, v := p.variant.original(h), p.recording.review
	called := slices.ContainsFunc(v.Calls, func(c latency.CallRecord) bool { return c.Hook == hook })
	return match.Decision{Match: called || p.recording.stoppedBefore(hook, p.variant) && p.recording.reviews.called(v, hook)}
}

// stoppedBefore reports whether a review ended before the turn of a hook that it did not call.
func (r *recording) stoppedBefore(hook match.HookID, c *Variant) bool {
	if admitted(r.review.Outcome) || r.review.Stage == admissionv1.Stage_STAGE_VALIDATE {
		return false
	}
	last := -1
	for i := range r.review.Calls {
		if call := &r.review.Calls[i]; call.Outcome != latency.OutcomeDiscarded {
			last = max(last, c.place(call.Hook))
		}
	}
	return last >= 0 && last < c.place(hook)
}

// View implements [chain.Subject]. Records do not say which versions hooks take.
func (*play) View(chain.Object, conversion.ResourceKind) (*chain.View, error) { return nil, errPatch }

// Rebase implements [chain.Subject].
func (*play) Rebase(o chain.Object, _, _ []byte) ([]byte, error) { return o.Raw, nil }

// Default implements [chain.Subject].
func (*play) Default(patched []byte, _ *chain.View) ([]byte, error) { return patched, nil }

// Apply implements [chain.Codec]. A patch of a replay is the id of its call: applying it takes the recorded time.
func (p *play) Apply(object, patch []byte) (result []byte, changed bool, err error) {
	id, err := strconv.Atoi(string(bytes.TrimSpace(patch)))
	c := p.started[id]
	if err != nil || c == nil {
		return nil, false, errPatch
	}
	p.now = p.now.Add(c.applied)
	switch {
	case c.failure != "":
		return nil, false, chain.ErrBadPatch
	case c.outcome == latency.OutcomeFailed:
		return nil, false, errPatch
	case c.outcome != outcomePatched:
		return object, false, nil
	}
	p.objects++
	return []byte(strconv.Itoa(p.objects)), true, nil
}

// Initialized implements [chain.Codec]: Apply reports the changes that do not apply.
func (*play) Initialized(_, _, result []byte) (merged []byte, changed bool, err error) {
	return result, true, nil
}

// Diff implements [chain.Codec]: the answer of a replay has no patch.
func (*play) Diff([]byte, []byte) ([]byte, error) { return nil, nil }

// result is the result of the call with an id.
func (c *script) result(id int) review.Result {
	verdict := &admissionv1.AdmissionResponse{Allowed: c.outcome != outcomeDenied}
	patched := c.outcome == outcomePatched || c.applied > 0 || c.outcome == latency.OutcomeFailed && c.failure == ""
	switch {
	case c.failure != "" && c.applied == 0:
		return review.Fail(kindOf(c.failure), "as recorded")
	case verdict.GetAllowed() && patched:
		verdict.Patch, verdict.PatchType = []byte(strconv.Itoa(id)), "JSONPatch"
	}
	return review.Result{Verdict: verdict}
}

// kindOf is the kind of a recorded failure.
func kindOf(name string) review.FailureKind {
	for kind := review.FailureTimeout; kind <= review.FailureCancelled; kind++ {
		if kind.String() == name {
			return kind
		}
	}
	return review.FailureHandler
}
