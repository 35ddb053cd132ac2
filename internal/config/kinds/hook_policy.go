package kinds

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ValidatingHookPolicy is a ValidatingAdmissionPolicy without the status, which Kubernetes writes and no author. The other kinds of policies and
// bindings have none.
type ValidatingHookPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	// Spec is the policy.
	Spec admissionregistrationv1.ValidatingAdmissionPolicySpec `json:"spec,omitempty"`
}
