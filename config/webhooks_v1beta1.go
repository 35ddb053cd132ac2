package config

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
)

// readV1beta1 is readV1 for a document of v1beta1: with the defaults and the validation of that version, and then as v1 says
// the same.
func readV1beta1[T, V1 any, C webhookConfiguration[T], Completed webhookConfiguration[V1]](c C) (Completed, field.ErrorList) {
	errs := createMeta(c)
	legacyscheme.Scheme.Default(c)
	internal, err := legacyscheme.Scheme.UnsafeConvertToVersion(c, admissionregistration.SchemeGroupVersion)
	if err != nil {
		return nil, append(errs, field.InternalError(nil, err))
	}
	completed, err := legacyscheme.Scheme.UnsafeConvertToVersion(internal, admissionregistrationv1.SchemeGroupVersion)
	v1, ok := completed.(Completed)
	if !ok {
		return nil, append(errs, field.InternalError(nil, err))
	}
	return v1, append(errs, validateWebhooks(v1, &older{})...)
}

// older are the rules of the versions before v1; nil stands for those of v1. Kubernetes still has them, for updates of objects that were made under
// them (ValidateValidatingWebhookConfigurationUpdate): what the object was before says which rules hold. So a document is
// validated as an update of one that had what the older versions allow: two hooks of one name, and unknown side effects.
type older struct {
	// reviewVersions are admissionReviewVersions of that object. One that no API server knows today allows others.
	reviewVersions []string
}

func (o *older) validating(c *admissionregistration.ValidatingWebhookConfiguration) field.ErrorList {
	if o == nil {
		return validation.ValidateValidatingWebhookConfiguration(c)
	}
	unknown := admissionregistration.SideEffectClassUnknown
	hook := admissionregistration.ValidatingWebhook{SideEffects: &unknown, AdmissionReviewVersions: o.reviewVersions}
	return validation.ValidateValidatingWebhookConfigurationUpdate(c, &admissionregistration.ValidatingWebhookConfiguration{
		Webhooks: []admissionregistration.ValidatingWebhook{hook, hook},
	})
}

func (o *older) mutating(c *admissionregistration.MutatingWebhookConfiguration) field.ErrorList {
	if o == nil {
		return validation.ValidateMutatingWebhookConfiguration(c)
	}
	unknown := admissionregistration.SideEffectClassUnknown
	hook := admissionregistration.MutatingWebhook{SideEffects: &unknown, AdmissionReviewVersions: o.reviewVersions}
	return validation.ValidateMutatingWebhookConfigurationUpdate(c, &admissionregistration.MutatingWebhookConfiguration{
		Webhooks: []admissionregistration.MutatingWebhook{hook, hook},
	})
}
