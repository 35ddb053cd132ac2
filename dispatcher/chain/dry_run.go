package chain

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// undeclaredSideEffects is the value of sideEffects in a hook without that field, and reachedByDryRun the error of its call
// in a dry run: the call fails by its failure policy, and the dry run is not refused (SEMANTICS C28).
const (
	undeclaredSideEffects = ""
	reachedByDryRun       = "Webhook SideEffects is nil: a dry run may not reach a hook that declares none"
)

// refuseDryRun returns the status that refuses a dry run which would reach a hook with side effects, whatever its failure
// policy (SEMANTICS C28); nil if there is no conflict.
func refuseDryRun(h *match.Hook, req *admissionv1.AdmissionRequest) *admissionv1.Status {
	harmless := []admissionregistrationv1.SideEffectClass{
		admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun, undeclaredSideEffects,
	}
	if !req.GetDryRun() || slices.Contains(harmless, h.SideEffects) {
		return nil
	}
	s := internal("hook %q does not support dry run (sideEffects: %s)", h.ID.Name, h.SideEffects)
	s.Code, s.Reason = codeBadRequest, string(metav1.StatusReasonBadRequest)
	return s
}
