package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// Where verdicts become HTTP. One rule: once it is known which review to answer (its version, and the uid that all but
// v1alpha1 have), the answer is 200 with an AdmissionReview. Any other status is to the API server a failure of the entry,
// and behind an entry with failurePolicy Ignore that is an allow: a review padded past a limit would be one (DESIGN section
// 4; SEMANTICS C20, C23). Failures without a cause in the review are left to the entry's policy on purpose: nothing may judge it
// (stale configuration, stopping), or there is no memory for it now. Those carry Retry-After, with which an API server
// tries again by itself while its own deadline lasts (C38).
//
//	event                                              review unknown   review known           outcome
//	-------------------------------------------------  ---------------  ---------------------  -----------
//	the hooks allow                                    -                200 allow              allowed
//	the same, and a fail-open hook gives no verdict    -                200 allow              failed-open
//	a hook denies                                      -                200 deny, its code     denied
//	the same, and a fail-closed hook gives no verdict  -                200 deny, 500 mostly   failed
//	nothing may judge: stale configuration, stopping   -                503 Retry-After        refused
//	no configuration yet                               503 Retry-After  -                      refused
//	no memory for it within the budget                 429 Retry-After  429 Retry-After        refused
//	a bridge alone, whose dispatchers are overloaded   -                429 Retry-After        refused
//	too many connections by capabilities               429 Retry-After  -                      refused
//	a bug of ours: panic, an answer that is none       500              200 deny, code 500     failed
//	body over the limit                                413              200 deny, code 413     refused
//	body late (slow sender)                            408              200 deny, code 408     refused
//	body cut off, not JSON, malformed, too deep        400              200 deny, code 400     refused
//	wrong kind or version, no request                  400              -                      refused
//	v1alpha1, which has no patches, but to validate    -                200 deny, code 400     refused
//	?timeout= malformed                                400              -                      refused
//	wrong content type, or an encoded body             415              -                      refused
//	no client certificate, capability not accepted     401              -                      refused
//	identity may not speak for the cluster             403              -                      refused
//	unknown path                                       404              -                      refused
//	method other than POST                             405 Allow        -                      refused
//
// Statuses other than 200 carry a metav1.Status. Over gRPC the same refusals are codes (service.go). The protocol of
// /enforce has another rule: see enforce.go.

// retryAfter is the Retry-After of a review that nothing may judge now: the shortest that HTTP has. A caller that has less time left
// gets none: an API server would wait in vain, and show its user that the time was over in place of the reason.
const retryAfter = time.Second

// refusal is an answer of the bridge's own, for a review that no hook sees. Its message is for the reader of the refused write or
// of the API server's log.
type refusal struct {
	outcome review.Outcome
	code    int
	reason  metav1.StatusReason
	message string
}

// temporary reports whether another attempt, or another dispatcher, may find the review judged: the failurePolicy of the entry decides.
func (r *refusal) temporary() bool {
	return r.code == http.StatusTooManyRequests || r.code == http.StatusServiceUnavailable
}

func reject(code int, reason metav1.StatusReason, format string, args ...any) *refusal {
	return &refusal{outcome: review.OutcomeRefused, code: code, reason: reason, message: fmt.Sprintf("portcullis: "+format, args...)}
}

func badRequest(format string, args ...any) *refusal {
	return reject(http.StatusBadRequest, metav1.StatusReasonBadRequest, format, args...)
}

// unauthenticated refuses a caller whose channel has no identity, or none any more.
func unauthenticated(why error) *refusal {
	if !errors.Is(why, identity.ErrNone) {
		return unauthorized(why)
	}
	return unauthorized(errNoCertificate)
}

var errNoCertificate = errors.New("the caller has no identity: " +
	"call with a client certificate that a trusted authority signed and that carries a URI name or a common name")

func unauthorized(why error) *refusal {
	return reject(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "%v", why)
}

// forbidden does not disclose whether the cluster exists. Before the first configuration nothing is known of callers.
func (b *Bridge) forbidden(why error, identity, cluster string) *refusal {
	if errors.Is(why, review.ErrNoConfiguration) {
		return b.unjudged(why)
	}
	return reject(http.StatusForbidden, metav1.StatusReasonForbidden, "identity %q may not send reviews for cluster %q: "+
		"add it to spec.identities of the Cluster document of that name, and an authority of its certificate to spec.authorities if there are any, "+
		"or correct the cluster's name in the URL", identity, cluster)
}

func tooLarge(limit int64) *refusal {
	return reject(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
		"the review is larger than %d bytes, the most that is judged: make the object smaller, or raise --max-body-bytes", limit)
}

func overloaded(full error) *refusal {
	return tooMany(full, "raise --memory-budget of the dispatcher")
}

func tooMany(why error, remedy string) *refusal {
	return &refusal{review.OutcomeRefused, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
		fmt.Sprintf("portcullis: %v: try again, or %s", why, remedy)}
}

// unjudged is the refusal of a review that a Reviewer has not judged. The error itself, with addresses and files of the operator, is
// not for callers.
func (b *Bridge) unjudged(err error) *refusal {
	switch {
	case errors.Is(err, review.ErrNoMemory):
		return overloaded(err)
	case errors.Is(err, ErrOverloaded):
		return tooMany(ErrOverloaded, "add dispatchers or raise their --memory-budget; the log of the bridge has the reason")
	}
	why := "the configuration is stale: the log and /readyz of the dispatcher say why"
	switch {
	case !b.Ready():
		why = "the dispatcher is stopping"
	case errors.Is(err, review.ErrNoConfiguration):
		why = "the dispatcher has no configuration yet: its log and /readyz say why"
	case errors.Is(err, ErrNoDispatcher):
		why = "the bridge reaches no dispatcher that judges; its log has the reason"
	case overBudget(err):
		why = "the configuration is stale, and the reviews that wait for a fresh one hold as many bytes as they may"
	}
	return &refusal{review.OutcomeRefused, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
		"portcullis: nothing may judge this review now (" + why + "): try again"}
}

func broken() *refusal {
	return &refusal{review.OutcomeFailed, http.StatusInternalServerError, metav1.StatusReasonInternalError,
		"portcullis: internal error; the dispatcher's log says more"}
}

// denial is the refusal as an answer to a review whose uid is known.
func (r *refusal) denial(uid, apiVersion string) *admissionv1.ReviewResponse {
	return &admissionv1.ReviewResponse{
		ApiVersion: apiVersion, Failed: r.outcome == review.OutcomeFailed, Outcome: string(r.outcome),
		Response: &admissionv1.AdmissionResponse{
			Uid: uid,
			Status: &admissionv1.Status{
				Status: metav1.StatusFailure, Message: r.message, Reason: string(r.reason), Code: int32(r.code),
			},
			AuditAnnotations: map[string]string{review.AuditOutcome: string(r.outcome)},
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

// headers sets the headers that HTTP wants beside a status. The review is due at deadline, if that is known.
func (r *refusal) headers(h http.Header, deadline time.Time) {
	switch r.code {
	case http.StatusMethodNotAllowed:
		h.Set("Allow", http.MethodPost)
	case http.StatusUnsupportedMediaType:
		h.Set("Accept", jsonType)
		h.Set("Accept-Encoding", identityEncoding)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if deadline.IsZero() || time.Until(deadline) > retryAfter {
			h.Set("Retry-After", strconv.Itoa(int(retryAfter/time.Second)))
		}
	}
}
