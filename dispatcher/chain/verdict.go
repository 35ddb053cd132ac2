package chain

import (
	"errors"
	"fmt"
	"strings"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// ErrBadPatch marks a patch that cannot be decoded: a failure of the hook, so that its failure policy decides
// (SEMANTICS C20). A patch that decodes but does not apply is an error whatever the policy says (C21).
var ErrBadPatch = conversion.ErrUndecodable

// jsonPatch is the only patch type that Kubernetes knows.
const jsonPatch = "JSONPatch"

// HTTP status codes for the client of the API server; a chain knows no HTTP.
const (
	codeBadRequest = 400
	codeInternal   = 500
)

// meaning is what a result does to the review.
type meaning uint8

const (
	allows meaning = iota // go on
	denies                // the answer is a denial by the hook
	fails                 // no verdict, and the hook is fail-closed
	opens                 // no verdict, and the hook is fail-open
)

// interpret says what the result of a call means, and turns a verdict that breaks the contract of admission.k8s.io/v1
// into a failure. A denial is read before everything else and stays one: upstream, a malformed patch beside it under
// failurePolicy Ignore would make it an allow (SEMANTICS C22; docs/deviations.md).
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
		return opens
	}
	return fails
}

// spoil makes a failure of a call whose verdict is well-formed and carries a patch that cannot be used. What it says
// beside the patch counts (SEMANTICS C43).
func (c *call) spoil(kind review.FailureKind, err error) {
	c.said = c.result.Verdict
	c.fail(kind, err)
}

// fail replaces the verdict of a call by a failure.
func (c *call) fail(kind review.FailureKind, err error) {
	c.result.Verdict = nil
	c.result.Failure = &review.Failure{Kind: kind, Err: err}
}

// wellFormed checks an allowing verdict as k8s.io/apiserver/pkg/admission/plugin/webhook/request
// VerifyAdmissionResponse does for v1, in its words. Which type a patch has is looked at when it is applied.
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

// denial is the status for the client of a request that a hook denied, as
// k8s.io/apiserver/pkg/admission/plugin/webhook/errors ToStatusErr builds it (SEMANTICS C24), with the hook's own name:
// the API server puts the name of the entry in front.
func denial(h *match.Hook, s *admissionv1.Status) *admissionv1.Status {
	out := &admissionv1.Status{
		Status:  s.GetStatus(),
		Reason:  firstBytes(s.GetReason(), maxReasonBytes),
		Details: boundedDetails(s.GetDetails()),
		Code:    max(s.GetCode(), codeBadRequest),
	}
	if out.GetStatus() == "" || out.GetStatus() == metav1.StatusSuccess {
		out.Status = metav1.StatusFailure
	}
	who := fmt.Sprintf("hook %q denied the request", h.ID.Name)
	switch {
	case s.GetMessage() != "":
		out.Message = who + ": " + s.GetMessage()
	case s.GetReason() != "":
		out.Message = who + ": " + s.GetReason()
	default:
		out.Message = who + " without explanation"
	}
	out.Message = shortened(out.Message, maxMessageBytes)
	return out
}

// internal is the status of a request that could not be judged (SEMANTICS C23).
func internal(format string, args ...any) *admissionv1.Status {
	return &admissionv1.Status{
		Status:  metav1.StatusFailure,
		Reason:  string(metav1.StatusReasonInternalError),
		Code:    codeInternal,
		Message: shortened(fmt.Sprintf(format, args...), maxMessageBytes),
	}
}

// failedCall is the status of a request whose fail-closed hook gave no verdict. It begins with the words of kube-apiserver, which
// tools and people look for (ErrCallingWebhook in k8s.io/apiserver/pkg/util/webhook, callHook in
// k8s.io/apiserver/pkg/admission/plugin/webhook/validating); the kind of the failure and the cause are ours.
func failedCall(c *call) *admissionv1.Status {
	what := "failed to call webhook"
	if c.result.Failure.Kind == review.FailureBadAnswer {
		what = "received invalid webhook response"
	}
	return internal("failed calling webhook %q: %s: %s: %s", c.hook.ID.Name, what, c.result.Failure.Kind, c.publicCause())
}

// publicCause is why there is no verdict, in words for the client. What a host says of an error in its handler is for the
// operator alone, as the contract promises; so is a stack. Of a webhook the client hears what kube-apiserver would say.
func (c *call) publicCause() string {
	f := c.result.Failure
	switch {
	case f.Kind == review.FailurePanic && c.hook.Route.Stream:
		return "its handler panicked; the stack is in the log of its host"
	case f.Kind == review.FailurePanic:
		return "the dispatcher panicked; the stack is in its log"
	case f.Kind == review.FailureHandler && c.hook.Route.Stream:
		return "its handler failed; the logs of its host and of the mesh say why"
	case f.Kind == review.FailureTimeout && !strings.Contains(f.Error(), deadlineExceeded):
		return deadlineExceeded + ": " + f.Error()
	}
	return f.Error()
}

// deadlineExceeded is what kube-apiserver says of a call that took too long: the text of context.DeadlineExceeded.
const deadlineExceeded = "context deadline exceeded"

// matchError is the status of a request whose matching failed: 404 for a missing namespace, 403 for a failed
// matchCondition, else 500.
func matchError(h *match.Hook, err *apierrors.StatusError) *admissionv1.Status {
	s := err.Status()
	return &admissionv1.Status{
		Status:  metav1.StatusFailure,
		Reason:  string(s.Reason),
		Code:    max(s.Code, codeBadRequest),
		Message: fmt.Sprintf("matching hook %q: %s", h.ID.Name, s.Message),
		Details: details(s.Details),
	}
}

// details is what a status of Kubernetes says about the object and the causes.
func details(d *metav1.StatusDetails) *admissionv1.StatusDetails {
	if d == nil {
		return nil
	}
	out := &admissionv1.StatusDetails{
		Name: d.Name, Group: d.Group, Kind: d.Kind, Uid: string(d.UID), RetryAfterSeconds: d.RetryAfterSeconds,
	}
	for _, c := range d.Causes {
		out.Causes = append(out.Causes, &admissionv1.StatusCause{Reason: string(c.Type), Message: c.Message, Field: c.Field})
	}
	return out
}
