package conversion

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// The differences of admission.k8s.io/v1alpha1. The package comment describes them.

// reviewStatus is AdmissionReviewStatus of k8s.io/api/admission/v1alpha1, as of Kubernetes 1.8.
type reviewStatus struct {
	Allowed bool           `json:"allowed"`
	Result  *metav1.Status `json:"status,omitempty"`
}

// asked is the member of a review with the request, and answered the member with the verdict.
func (d *decoder) asked() string    { return d.layout("request", "spec") }
func (d *decoder) answered() string { return d.layout("response", "status") }

func (d *decoder) layout(today, alpha string) string {
	if d.alpha {
		return alpha
	}
	return today
}

// inV1alpha1 reports whether a member of a request is one in v1alpha1 too: of AdmissionReviewSpec.
func inV1alpha1(name []byte) bool {
	switch string(name) {
	case "kind", "object", "oldObject", "operation", "name", "namespace", "resource", "subResource", "userInfo":
		return true
	}
	return false
}

func (w *jsonWriter) reviewStatus(r *admissionv1.AdmissionResponse) {
	w.name("status")
	w.open('{')
	w.boolean("allowed", r.GetAllowed())
	if r.GetStatus() != nil {
		w.status(r.GetStatus())
	}
	w.close('}')
}

// sharedV1alpha1 writes a review that asks as the API servers of that time did: NewAdmissionReview of
// k8s.io/kubernetes/pkg/apis/admission/v1alpha1. It carries a status that denies, which webhooks are to fill in.
func sharedV1alpha1(r *admissionv1.AdmissionRequest) *SharedReview {
	s := &SharedReview{noUID: true, tail: make([][]byte, 0, 5)}
	w := make(jsonWriter, 0, 1024)
	w.openReview(versionV1alpha1)
	w.name("spec")
	w.open('{')
	w.names("kind", "kind", r.GetKind().GetGroup(), r.GetKind().GetVersion(), r.GetKind().GetKind())
	w = s.object(w, `,"object":`, r.GetObject())
	w = s.object(w, `,"oldObject":`, r.GetOldObject())

	rest := jsonWriter{'"'} // As if a member stood before, so that a comma follows.
	rest.optional("operation", r.GetOperation())
	rest.optional("name", r.GetName())
	rest.optional("namespace", r.GetNamespace())
	rest.names("resource", "resource", r.GetResource().GetGroup(), r.GetResource().GetVersion(), r.GetResource().GetResource())
	rest.optional("subResource", r.GetSubResource())
	rest.user(r.GetUserInfo())
	w = append(w, rest[1:]...)
	s.piece(append(w, `},"status":{"allowed":false}}`...))
	return s
}
