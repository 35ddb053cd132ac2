package chain

import (
	"errors"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// meaning is the effect of a result on the review. A call without a verdict in time is a failure of kind timeout
// ([call.expire]); what a failure means depends on the failurePolicy of its hook only ([call.interpret]).
type meaning uint8

const (
	allows       meaning = iota // the review goes on
	denies                      // the hook denies the request
	failedClosed                // no verdict, failurePolicy Fail
	failedOpen                  // no verdict, failurePolicy Ignore
)

// interpret returns the meaning of the result of an ended call, and replaces a verdict that breaks the contract of
// admission.k8s.io/v1 by a failure. A denial is checked first and stays a denial: upstream, a malformed patch beside it
// would make it an allow under failurePolicy Ignore (SEMANTICS C22; docs/deviations.md).
func (c *call) interpret() meaning {
	if v := c.result.Verdict; v != nil {
		if !v.GetAllowed() {
			return denies
		}
		if err := wellFormed(c.hook.ID.Stage, v); err != nil {
			c.fail(review.FailureBadAnswer, err)
		}
	}
	switch {
	case c.result.Failure == nil && c.result.Verdict == nil:
		c.fail(review.FailureBadAnswer, errors.New("neither a verdict nor a failure"))
	case c.result.Failure == nil:
		return allows
	}
	if c.hook.FailurePolicy == admissionregistrationv1.Ignore {
		return failedOpen
	}
	return failedClosed
}

// failPatch replaces a well-formed verdict whose patch cannot be used by a failure. Its warnings and audit annotations still
// count (SEMANTICS C43).
func (c *call) failPatch(kind review.FailureKind, err error) {
	c.replacedVerdict = c.result.Verdict
	c.fail(kind, err)
}

// fail replaces the verdict of a call by a failure.
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

// undeclaredSideEffects is the value of sideEffects in a hook without that field, and reachedByDryRun the error of its call
// in a dry run.
const (
	undeclaredSideEffects = ""
	reachedByDryRun       = "Webhook SideEffects is nil: a dry run may not reach a hook that declares none"
)

// startWithin starts a call with limit as its time. It returns false if the call has failed without being made: there is no
// time left, or the hook does not declare its side effects and the request is a dry run (SEMANTICS C28).
func (c *call) startWithin(o *Options, now time.Time, limit time.Duration) bool {
	if c.hook.SideEffects == undeclaredSideEffects && o.Request.Admission.GetDryRun() {
		c.state = ended
		c.result = review.Fail(review.FailureRefused, reachedByDryRun)
		return false
	}
	c.limit, c.deadline = limit, now.Add(limit)
	c.state = started
	return !c.expire(now)
}

// expire ends a started call whose deadline has passed with a failure of kind timeout, and reports whether it did.
func (c *call) expire(now time.Time) bool {
	if c.state != started || now.Before(c.deadline) {
		return false
	}
	c.state = ended
	switch {
	case c.limit <= 0:
		c.result = review.Fail(review.FailureTimeout, "no time left to call it")
	case c.limit < c.hook.Timeout:
		c.result = review.Fail(review.FailureTimeout,
			"no verdict within %s, the time that was left for it (timeout %s)", c.limit, c.hook.Timeout)
	default:
		c.result = review.Fail(review.FailureTimeout, "no verdict in time (timeout %s)", c.hook.Timeout)
	}
	return true
}
