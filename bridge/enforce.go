package bridge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"

	k8sadmission "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// The protocol of /enforce is the "generic external admission webhook" of the proposal that began it all (Extension of
// Admission Control via Initializers and External Admission Enforcement). The status is the verdict, so that a caller
// needs no AdmissionReview to read one:
//
//	204  admitted, and there is nothing more to say: no body
//	200  admitted; the body says more: warnings, annotations for the audit log
//	400  rejected: the caller answers its own client with the field "status" of the body, a metav1.Status
//
// Every other status is no verdict, and a matter of the caller's failurePolicy: 401, 403, 404 and 405, which an authorized caller
// never gets for an object; 429 and 503 with Retry-After, when nothing may judge now. For a caller who
// may speak for the cluster everything else that keeps a document from being judged is a rejection, whose code is in
// "status": a 413 of its own would be an allow behind failurePolicy Ignore, by padding.
//
// The choices here where the proposal is open:
//
//   - It does not mutate ("this API explicitly does not allow mutations"): the validating hooks are asked, all at once.
//     Initializers and mutating hooks belong before it; /admit runs both kinds of hooks.
//   - The body is read in the proposal's own form, an AdmissionReview with "spec" (enforce_spec.go), and in today's, with
//     "request".
//   - The body of the answer is an AdmissionReview, "spec" left out as it may be, with "status", and beside it "response"
//     of today's form, the one place where warnings and annotations have a name.
//   - The proposal expects protobuf in the end: that is the AdmissionService. Here it is JSON.
//   - Asking again is harmless, as it demands ("submission must be idempotent"): nothing is remembered.

// defaultVersion is the apiVersion that the proposal shows, for answers to reviews without one.
const defaultVersion = "admission.k8s.io/v1"

// enforcement is the body of an answer.
type enforcement struct {
	metav1.TypeMeta `json:",inline"`

	Status   metav1.Status                   `json:"status"`
	Response *k8sadmission.AdmissionResponse `json:"response,omitempty"`
}

// encodeEnforced encodes an answer. 204 has no body.
func encodeEnforced(r *admissionv1.ReviewResponse) (code int, body []byte, err error) {
	code = enforcedCode(r)
	if code == http.StatusNoContent {
		return code, nil, nil
	}
	response := r.GetResponse()
	answer := enforcement{
		TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: cmp.Or(r.GetApiVersion(), defaultVersion)},
		Status:   metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusOK},
	}
	if !response.GetAllowed() {
		answer.Status = statusOf(response.GetStatus())
	}
	if response.GetUid() != "" {
		answer.Response = &k8sadmission.AdmissionResponse{
			UID: types.UID(response.GetUid()), Allowed: response.GetAllowed(),
			AuditAnnotations: response.GetAuditAnnotations(), Warnings: response.GetWarnings(),
		}
		if !response.GetAllowed() {
			answer.Response.Result = &answer.Status
		}
	}
	if body, err = json.Marshal(answer); err != nil {
		return 0, nil, fmt.Errorf("encoding the answer: %w", err)
	}
	return code, body, nil
}

// enforcedCode is the HTTP status of an answer.
func enforcedCode(r *admissionv1.ReviewResponse) int {
	response := r.GetResponse()
	switch {
	case !response.GetAllowed():
		return http.StatusBadRequest
	case len(response.GetWarnings()) > 0:
		return http.StatusOK
	}
	for _, value := range response.GetAuditAnnotations() {
		if value != r.GetRevision() { // which is a header too
			return http.StatusOK
		}
	}
	return http.StatusNoContent
}

// statusOf is the status of a denial in Kubernetes' type.
func statusOf(s *admissionv1.Status) metav1.Status {
	out := conversion.KubernetesStatus(s)
	out.Status, out.Code = cmp.Or(out.Status, metav1.StatusFailure), max(out.Code, http.StatusBadRequest)
	return *out
}
