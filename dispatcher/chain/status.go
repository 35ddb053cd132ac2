package chain

import (
	"errors"
	"fmt"
	"strings"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// ErrBadPatch marks a patch that cannot be decoded: a failure of the hook, so that its failure policy decides
// (SEMANTICS C20). A patch that decodes but does not apply refuses the request whatever the policy (C21).
var ErrBadPatch = conversion.ErrUndecodable

// jsonPatch is the only patch type that Kubernetes knows.
const jsonPatch = "JSONPatch"

// HTTP status codes of answers; net/http is not imported here.
const (
	codeBadRequest = 400
	codeInternal   = 500
	codeTimeout    = 504
	maxCode        = 599
)

// denial returns the status for the client of a request that a hook denied, built as ToStatusErr of
// k8s.io/apiserver/pkg/admission/plugin/webhook/errors does (SEMANTICS C24), with the name of the hook: the API server adds the name of the entry.
func (c *call) denial() *admissionv1.Status {
	s := c.result.Verdict.GetStatus()
	out := &admissionv1.Status{
		Status:  s.GetStatus(),
		Reason:  firstBytes(s.GetReason(), maxReasonBytes),
		Details: boundedDetails(s.GetDetails()),
		Code:    codeOf(s.GetCode()),
	}
	if out.GetStatus() == "" || out.GetStatus() == metav1.StatusSuccess {
		out.Status = metav1.StatusFailure
	}
	who := fmt.Sprintf("%s %q denied the request", word(c.Hook), c.Hook.ID.Name)
	switch {
	case c.Hook.Policy != nil: // its verdict names the policy, in the words of kube-apiserver
		out.Message = s.GetMessage()
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

// codeOf returns the HTTP status code of a refusal: the given one if it is of an error, else 400 (ToStatusErr). kube-apiserver and
// net/http panic at a code above 999, and HTTP has none above 599.
func codeOf(code int32) int32 {
	if code < codeBadRequest || code > maxCode {
		return codeBadRequest
	}
	return code
}

// internal returns the status of a request that could not be judged (SEMANTICS C23).
func internal(format string, args ...any) *admissionv1.Status {
	return &admissionv1.Status{
		Status:  metav1.StatusFailure,
		Reason:  string(metav1.StatusReasonInternalError),
		Code:    codeInternal,
		Message: shortened(fmt.Sprintf(format, args...), maxMessageBytes),
	}
}

// failedCall returns the status of a request whose fail-closed hook gave no verdict. It begins with the words of kube-apiserver,
// for which tools and people search (ErrCallingWebhook in k8s.io/apiserver/pkg/util/webhook, callHook in
// k8s.io/apiserver/pkg/admission/plugin/webhook/validating), followed by kind and cause of the failure, and the culprit. A policy has an answer itself.
func failedCall(o *Options, c *call) *admissionv1.Status {
	switch {
	case c.refuses():
		return c.denial()
	case c.Hook.Initializes():
		return failedInitializer(o, c)
	}
	what := "failed to call webhook"
	switch {
	case errors.Is(c.result.Failure, ErrBadPatch):
		return internal("failed calling webhook %q: %s [%s]", c.Hook.ID.Name, c.publicCause(), culprit(c, analyzed(o)))
	case c.result.Failure.Kind == review.FailureBadAnswer:
		what = "received invalid webhook response"
	}
	return internal("failed calling webhook %q: %s: %s: %s [%s]", c.Hook.ID.Name, what, c.result.Failure.Kind, c.publicCause(), culprit(c, analyzed(o)))
}

// word names the kind of a hook for people.
func word(h *match.Hook) string {
	switch {
	case h.Initializes():
		return "initializer"
	case h.Policy != nil:
		return "policy"
	}
	return "hook"
}

// failedInitializer returns the status of a CREATE whose fail-closed initializer has not acted. If its time was over, it is the timeout that
// spec/1 asks for: with uid and resourceVersion of the staged object, so that the client can look at it.
func failedInitializer(o *Options, c *call) *admissionv1.Status {
	s := internal("initializer %q has not initialized the object: %s: %s [%s]", c.Hook.ID.Name, c.result.Failure.Kind, c.publicCause(), culprit(c, analyzed(o)))
	if c.result.Failure.Kind != review.FailureTimeout {
		return s
	}
	s.Code, s.Reason = codeTimeout, string(metav1.StatusReasonTimeout)
	request := o.Request.Admission
	s.Details = &admissionv1.StatusDetails{Name: request.GetName(), Group: request.GetResource().GetGroup(), Kind: request.GetKind().GetKind()}
	if staged := c.result.Timing.Staged; staged != nil {
		s.Details.Uid = staged.UID
		s.Details.Causes = []*admissionv1.StatusCause{{
			Reason: "Uninitialized", Field: "metadata.initializers.pending",
			Message: fmt.Sprintf("%s had not acted on uid %s at resourceVersion %s", c.Hook.ID.Name, staged.UID, staged.ResourceVersion),
		}}
	}
	return s
}

// publicCause returns the cause of a failure for the client. Error texts and stacks of handlers are for operators only, as the
// host protocol promises. For webhooks the client gets the text of kube-apiserver.
func (c *call) publicCause() string {
	f := c.result.Failure
	switch {
	case f.Kind == review.FailurePanic && c.Hook.Route.Stream:
		return "its handler panicked; the stack is in the log of its host"
	case f.Kind == review.FailurePanic:
		return "the dispatcher panicked; the stack is in its log"
	case f.Kind == review.FailureHandler && c.Hook.Route.Stream:
		return "its handler failed; the logs of its host and of the mesh say why"
	case f.Kind == review.FailureTimeout && !strings.Contains(f.Error(), deadlineExceeded):
		return deadlineExceeded + ": " + f.Error()
	}
	return f.Error()
}

// deadlineExceeded is the text of context.DeadlineExceeded, which kube-apiserver returns for a timeout.
const deadlineExceeded = "context deadline exceeded"

// matchError returns the status of a request whose matching failed: 404 for a missing namespace, 403 for a failed
// matchCondition, else 500.
func matchError(h *match.Hook, err *apierrors.StatusError) *admissionv1.Status {
	s := conversion.StatusMessage(&err.ErrStatus)
	s.Status, s.Code, s.Message = metav1.StatusFailure, codeOf(s.GetCode()), fmt.Sprintf("matching hook %q: %s", h.ID.Name, s.GetMessage())
	return s
}
