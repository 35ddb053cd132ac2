// Package jsonreview is one call of an ordinary admission webhook, without a network: the AdmissionReview that it is sent as JSON,
// the HTTP request around that, and the meaning of its answer. It follows the clients of k8s.io/apiserver/pkg/util/webhook and
// VerifyAdmissionResponse of k8s.io/apiserver/pkg/admission/plugin/webhook/request, but for two differences:
//
//   - A denial is read first and stays one, whatever else is wrong with the answer: its HTTP status, its length, the
//     rest of the JSON, and Retry-After (docs/deviations.md, D1).
//   - Redirects are not followed, and answers are bounded.
//
// Package outbound of the mesh calls webhooks with it, and so does a host that stands before a webhook (package adapt), so that the
// same answer has the same meaning. Nothing here waits. All values may be read from any goroutine.
package jsonreview

import (
	"slices"
	"sync"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// The versions of AdmissionReview that are spoken, in full as a review has them.
const (
	V1       = "admission.k8s.io/v1"
	V1beta1  = "admission.k8s.io/v1beta1"
	V1alpha1 = "admission.k8s.io/v1alpha1"
)

// Negotiate picks the first of the admissionReviewVersions of a hook that API servers speak: CreateAdmissionObjects of
// k8s.io/apiserver/pkg/admission/plugin/webhook/request (SEMANTICS C33). v1alpha1, which today's do not, is for validating
// hooks that take nothing else, from an ExternalAdmissionHookConfiguration. Empty when there is none.
func Negotiate(stage admissionv1.Stage, versions []string) string {
	for _, v := range versions {
		switch v {
		case "v1":
			return V1
		case "v1beta1":
			return V1beta1
		}
	}
	if stage == admissionv1.Stage_STAGE_VALIDATE && slices.Contains(versions, "v1alpha1") {
		return V1alpha1
	}
	return ""
}

// Review is a review for webhooks. It is encoded at its first use, once in each version.
type Review struct {
	request *admissionv1.AdmissionRequest

	mu       sync.Mutex
	versions map[string]*conversion.SharedReview
}

// New is the review of a request, which must not change as long as the review or a body made from it is in use.
func New(r *admissionv1.AdmissionRequest) *Review {
	return &Review{request: withRequestKind(r), versions: make(map[string]*conversion.SharedReview, 1)}
}

// In is the review in a version that Negotiate picked.
func (r *Review) In(version string) (*conversion.SharedReview, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if encoded := r.versions[version]; encoded != nil {
		return encoded, nil
	}
	encoded, err := conversion.EncodeSharedReview(&admissionv1.ReviewRequest{Request: r.request, ApiVersion: version})
	if err == nil {
		r.versions[version] = encoded
	}
	return encoded, err
}

// withRequestKind fills in the kind and resource that the client asked for, as API servers do since 1.15; older ones convert
// nothing. All else is shared.
func withRequestKind(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionRequest {
	if r.GetRequestKind() != nil {
		return r
	}
	return &admissionv1.AdmissionRequest{
		Kind: r.GetKind(), Resource: r.GetResource(), SubResource: r.GetSubResource(),
		RequestKind: r.GetKind(), RequestResource: r.GetResource(), RequestSubResource: r.GetSubResource(),
		Name: r.GetName(), Namespace: r.GetNamespace(), Operation: r.GetOperation(), UserInfo: r.GetUserInfo(),
		Object: r.GetObject(), OldObject: r.GetOldObject(), Options: r.GetOptions(), DryRun: r.DryRun,
	}
}
