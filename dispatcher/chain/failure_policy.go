package chain

import (
	"errors"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// interpret returns the effect of the result of an ended call: Allowed, Denied, FailedOpen or FailedClosed. It replaces a
// verdict that breaks the contract of admission.k8s.io/v1 by a failure. A denial is checked first and stays a denial:
// upstream, a malformed patch beside it would make it an allow under failurePolicy Ignore (SEMANTICS C22;
// docs/deviations.md).
func (c *call) interpret() Effect {
	v := c.result.Verdict
	switch {
	case c.refuses():
	case v != nil:
		if err := wellFormed(c.Hook.ID.Stage, v); err != nil {
			c.fail(review.FailureBadAnswer, err)
		}
	case c.result.Failure == nil:
		c.fail(review.FailureBadAnswer, errors.New("neither a verdict nor a failure"))
	}
	return c.resultEffect()
}

// refuses reports whether the result has the answer that refuses the request: a denial, or the answer of a policy that failed closed.
func (c *call) refuses() bool { return c.result.Verdict != nil && !c.result.Verdict.GetAllowed() }

// resultEffect returns the effect of a result that interpret has checked. A call that has ended at its deadline has a failure like any other. The
// failurePolicy of the hook decides the effect of a failure, unless the request always fails open. A policy with an answer has decided itself.
func (c *call) resultEffect() Effect {
	switch {
	case c.result.Failure != nil && c.refuses():
		return FailedClosed
	case c.result.Failure != nil && (c.Hook.Policy != nil && c.result.Verdict != nil || c.failOpen || c.Hook.FailurePolicy == admissionregistrationv1.Ignore):
		return FailedOpen
	case c.result.Failure != nil:
		return FailedClosed
	case c.refuses():
		return Denied
	}
	return Allowed
}

// failPatch replaces a well-formed verdict whose patch cannot be used by a failure. Its warnings and audit annotations still
// count (SEMANTICS C43).
func (c *call) failPatch(kind review.FailureKind, err error) {
	c.replacedVerdict = c.result.Verdict
	c.fail(kind, err)
}

func (c *call) fail(kind review.FailureKind, err error) {
	c.result.Verdict = nil
	c.result.Failure = &review.Failure{Kind: kind, Err: err}
}

// wellFormed checks an allowing verdict as VerifyAdmissionResponse of k8s.io/apiserver/pkg/admission/plugin/webhook/request
// does for v1, with the same messages. The type of a patch is checked when it is applied.
func wellFormed(stage admissionv1.Stage, v *admissionv1.AdmissionResponse) error {
	hasPatch, hasType, validates := len(v.GetPatch()) > 0, v.GetPatchType() != "", stage == admissionv1.Stage_STAGE_VALIDATE
	switch {
	case validates && hasPatch:
		return errors.New("validating webhook may not return response.patch")
	case validates && hasType:
		return errors.New("validating webhook may not return response.patchType")
	case hasPatch && !hasType:
		return errors.New("webhook returned response.patch but not response.patchType")
	case hasType && !hasPatch:
		return errors.New("webhook returned response.patchType but not response.patch")
	}
	return nil
}

// startWithin starts a call with limit as its time. It returns false if the call has failed without being made: there is no
// time left, or the hook does not declare its side effects and the request is a dry run (SEMANTICS C28).
func (c *call) startWithin(o *Options, now time.Time, limit time.Duration) bool {
	if c.Hook.SideEffects == undeclaredSideEffects && o.Request.Admission.GetDryRun() {
		c.state = ended
		c.result = review.Fail(review.FailureRefused, reachedByDryRun)
		return false
	}
	c.limit, c.Deadline = limit, now.Add(limit)
	c.state = started
	return !c.expire(o, now)
}

// expire ends a started call whose deadline has passed with a failure of kind timeout, and reports whether it did.
func (c *call) expire(o *Options, now time.Time) bool {
	if c.state != started || now.Before(c.Deadline) {
		return false
	}
	c.state = ended
	switch {
	case c.limit <= 0:
		c.result = review.Fail(review.FailureTimeout, "no time left to call it")
	case c.limit < c.Hook.Timeout:
		c.result = review.Fail(review.FailureTimeout,
			"no verdict within %s, which its entry and the hooks before it left of its timeout of %s", c.limit, c.Hook.Timeout)
	default:
		c.result = review.Fail(review.FailureTimeout, "no verdict in time (timeout %s)", c.Hook.Timeout)
	}
	if o.Spent != nil && c.limit > 0 {
		c.result.Timing = o.Spent(c.ID)
	}
	return true
}
