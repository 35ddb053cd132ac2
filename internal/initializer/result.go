package initializer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// Outcomes of the last call of a hold, as a metric label.
const (
	outcomeInitialized = "initialized" // a controller has acted
	outcomeAnswered    = "answered"    // a host has answered
	outcomeRefused     = "refused"     // an initializer has set a result
	outcomeDeleted     = "deleted"
	outcomeExists      = "exists"
	outcomeFailed      = "failed"
	outcomeCancelled   = "cancelled" // also: its time was over
	outcomeNone        = "none"      // no initializer was asked
)

// existsError is that another review of this object is held.
type existsError struct {
	there  *initializerv1.StagedObject
	reason error
}

// Error implements error.
func (e *existsError) Error() string { return e.reason.Error() }

// result is the result of a call without a verdict of a host, whose wait has ended with err.
func (h *Hold) result(x *call, err error) (r review.Result, outcome string) {
	defer func() {
		if r.Timing = h.timing(x); r.Verdict != nil {
			r.Timing.Instance = "" // no host has given it
		}
	}()
	ctx, pending := x.turn.ctx, x.state.pending
	o := h.known() // a call may end before its turn
	var exists *existsError
	var full *FullError
	var over *staged.FullError
	var noRoom *memory.FullError
	switch {
	case o.GetResult() != nil:
		return denied(proto.CloneOf(o.GetResult())), outcomeRefused
	case err == nil:
		return initialized(x, o)
	case errors.Is(err, staged.ErrNotFound) && h.lapsed():
		err = errLapsed
	case errors.Is(err, staged.ErrNotFound):
		return denied(deleted(o.GetKey())), outcomeDeleted
	case errors.As(err, &exists):
		return denied(alreadyExists(exists)), outcomeExists
	case errors.As(err, &over):
		h.stager.metrics.refusals.WithLabelValues(string(over.Bound)).Inc()
		return review.Fail(review.FailureOverload, "%w", over), outcomeFailed
	case errors.As(err, &noRoom):
		h.stager.metrics.refusals.WithLabelValues(string(staged.Memory)).Inc()
		return review.Fail(review.FailureOverload, "the staged object: %w", noRoom), outcomeFailed
	case errors.As(err, &full):
		return review.Fail(review.FailureTooLarge, "%w", full), outcomeFailed
	case errors.Is(err, staged.ErrUnavailable):
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return review.Fail(review.FailureTimeout, "initializer %q has not acted in time on uid %q, resource version %q",
			NameOf(pending[0]), o.GetUid(), o.GetResourceVersion()), outcomeCancelled
	case ctx.Err() != nil:
		return review.Cancelled(), outcomeCancelled
	}
	return review.Fail(review.FailureUnavailable, "staging the object: %w", err), outcomeFailed
}

// initialized is the verdict of an initializer that has acted: the difference between the object that it was given and the staged one.
func initialized(x *call, o *initializerv1.StagedObject) (review.Result, string) {
	patch, err := conversion.DiffPatch(x.turn.object, o.GetObject().GetRaw())
	if err != nil {
		return review.Fail(review.FailureBadAnswer, "the object that initializer %q has left: %w", NameOf(x.state.pending[0]), err), outcomeFailed
	}
	verdict := &admissionv1.AdmissionResponse{Allowed: true, Patch: patch}
	if patch != nil {
		verdict.PatchType = "JSONPatch"
	}
	return review.Result{Verdict: verdict}, outcomeInitialized
}

// timing splits the time of a call that has ended: until the object was staged, and since. If hosts were asked, their timing names the
// instance that had the call.
func (h *Hold) timing(x *call) review.Timing {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, ready, o := time.Since(x.turn.begun), x.turn.queued, h.machine.seen
	if ready == 0 {
		return review.Timing{Queued: now}
	}
	t := review.Timing{Queued: ready, Host: now - ready}
	if x.asked != nil {
		t = *x.asked
	}
	t.Staged = &review.Staged{}
	t.Staged.UID, t.Staged.ResourceVersion = o.GetUid(), o.GetResourceVersion()
	return t
}

func denied(s *admissionv1.Status) review.Result {
	return review.Result{Verdict: &admissionv1.AdmissionResponse{Status: s}}
}

func deleted(k *initializerv1.StagedKey) *admissionv1.Status {
	return &admissionv1.Status{
		Status: failure, Code: 409, Reason: "Conflict",
		Message: fmt.Sprintf("%s %q was deleted while it was being initialized", k.GetResource().GetResource(), k.GetName()),
		Details: &admissionv1.StatusDetails{Name: k.GetName(), Group: k.GetResource().GetGroup(), Kind: k.GetResource().GetResource()},
	}
}

func alreadyExists(e *existsError) *admissionv1.Status {
	k := e.there.GetKey()
	return &admissionv1.Status{
		Status: failure, Code: 409, Reason: "AlreadyExists", Message: e.Error(),
		Details: &admissionv1.StatusDetails{
			Name: k.GetName(), Group: k.GetResource().GetGroup(), Kind: k.GetResource().GetResource(), Uid: e.there.GetUid(),
		},
	}
}
