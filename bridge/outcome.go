package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/identity"
)

// Where verdicts become HTTP. One rule: once it is known which review to answer (its version, and the uid that all but
// v1alpha1 have), the answer is 200 with an AdmissionReview. Any other status is to the API server a failure of the entry,
// and behind an entry with failurePolicy Ignore that is an allow: a review padded past a limit would be one (DESIGN section
// 4; SEMANTICS C20, C23). Failures without a cause in the review are left to the entry's policy on purpose: nothing may judge it
// (stale configuration, stopping), or there is no memory for it now. Those carry Retry-After, with which an API server
// tries again by itself while its own deadline lasts (C38).
//
//	what happened                                      review unknown   review known           outcome (metric)
//	-------------------------------------------------  ---------------  ---------------------  ----------------
//	the hooks allow                                    -                200 allow              allowed
//	a hook denies                                      -                200 deny, its code     denied
//	no hook denies, and one that must gives no verdict -                200 deny, 500 mostly   failed
//	nothing may judge: stale configuration, stopping   -                503 Retry-After        unjudged
//	no memory for it within the budget                 429 Retry-After  429 Retry-After        unjudged
//	a bug of ours: panic, an answer that is none       500              200 deny, code 500     broken
//	body over the limit                                413              200 deny, code 413     rejected
//	body late (slow sender)                            408              200 deny, code 408     rejected
//	body cut off, not JSON, malformed, too deep        400              200 deny, code 400     rejected
//	wrong kind or version, no request                  400              -                      rejected
//	v1alpha1, which has no patches, but to validate    -                200 deny, code 400     rejected
//	?timeout= malformed                                400              -                      rejected
//	wrong content type, or an encoded body             415              -                      rejected
//	no client certificate                              401              -                      rejected
//	identity may not speak for the cluster             403              -                      rejected
//	unknown path                                       404              -                      rejected
//	method other than POST                             405 Allow        -                      rejected
//
// Statuses other than 200 carry a metav1.Status. Over gRPC the same refusals are codes (service.go). The protocol of
// /enforce has another rule: see enforce.go.

// outcome is the result of a review at the bridge, in the metrics: a closed set.
type outcome string

const (
	outcomeAllowed  outcome = "allowed"
	outcomeDenied   outcome = "denied"
	outcomeFailed   outcome = "failed"
	outcomeRejected outcome = "rejected"
	outcomeUnjudged outcome = "unjudged"
	outcomeBroken   outcome = "broken"
)

// outcomeOf is the outcome of an answer of the Reviewer.
func outcomeOf(answer review.Answer) outcome {
	switch {
	case answer.Response.GetAllowed():
		return outcomeAllowed
	case answer.Failed:
		return outcomeFailed
	}
	return outcomeDenied
}

// retryAfter is the Retry-After of a review that nothing may judge now, in seconds: the shortest that HTTP has.
const retryAfter = "1"

// refusal is an answer of the bridge's own, for a review that no hook sees. Its message is for the reader of the refused write or
// of the API server's log.
type refusal struct {
	outcome outcome
	code    int
	reason  metav1.StatusReason
	message string
}

func reject(code int, reason metav1.StatusReason, format string, args ...any) *refusal {
	return &refusal{outcome: outcomeRejected, code: code, reason: reason, message: fmt.Sprintf("portcullis: "+format, args...)}
}

func badRequest(format string, args ...any) *refusal {
	return reject(http.StatusBadRequest, metav1.StatusReasonBadRequest, format, args...)
}

// unauthenticated refuses a caller whose channel has no identity, or none any more.
func unauthenticated(why error) *refusal {
	if !errors.Is(why, identity.ErrNone) {
		return reject(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "%v", why)
	}
	return reject(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "the caller has no identity: "+
		"call with a client certificate that a trusted authority signed and that carries a URI name or a common name")
}

// forbidden does not disclose whether the cluster exists.
func forbidden(identity, cluster string) *refusal {
	return reject(http.StatusForbidden, metav1.StatusReasonForbidden, "identity %q may not send reviews for cluster %q: "+
		"add it to spec.identities of the Cluster document of that name, and an authority of its certificate to spec.authorities if there are any, "+
		"or correct the cluster's name in the URL", identity, cluster)
}

func tooLarge(limit int64) *refusal {
	return reject(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
		"the review is larger than %d bytes, the most that is judged: make the object smaller, or raise the limit", limit)
}

func overloaded(full error) *refusal {
	return &refusal{outcomeUnjudged, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
		fmt.Sprintf("portcullis: %v: try again, or raise the memory budget of the dispatcher", full)}
}

// unjudged is the refusal of a review that a Reviewer has not judged.
func unjudged(err error) *refusal {
	if errors.Is(err, review.ErrNoMemory) {
		return overloaded(err)
	}
	why := "the configuration is stale, or the dispatcher is stopping"
	if overBudget(err) {
		why = "the configuration is stale, and the reviews that wait for a fresh one hold as many bytes as they may"
	}
	return &refusal{outcomeUnjudged, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
		"portcullis: nothing may judge this review now (" + why + "): try again"}
}

func broken() *refusal {
	return &refusal{outcomeBroken, http.StatusInternalServerError, metav1.StatusReasonInternalError,
		"portcullis: internal error; the dispatcher's log says more"}
}

// denial is the refusal as an answer to a review whose uid is known.
func (r *refusal) denial(uid, apiVersion string) *admissionv1.ReviewResponse {
	return &admissionv1.ReviewResponse{
		ApiVersion: apiVersion,
		Response: &admissionv1.AdmissionResponse{
			Uid: uid,
			Status: &admissionv1.Status{
				Status: metav1.StatusFailure, Message: r.message, Reason: string(r.reason), Code: int32(r.code),
			},
		},
	}
}

// status is the refusal as the body of an HTTP error.
func (r *refusal) status() []byte {
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Message:  r.message,
		Reason:   r.reason,
		Code:     int32(r.code),
	})
	if err != nil {
		return nil // strings and a number always marshal
	}
	return body
}

// headers sets the headers that HTTP wants beside a status.
func (r *refusal) headers(h http.Header) {
	switch r.code {
	case http.StatusMethodNotAllowed:
		h.Set("Allow", http.MethodPost)
	case http.StatusUnsupportedMediaType:
		h.Set("Accept", jsonType)
		h.Set("Accept-Encoding", identityEncoding)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", retryAfter)
	}
}
