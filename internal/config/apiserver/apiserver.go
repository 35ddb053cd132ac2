// Package apiserver validates webhook configurations by the code of kube-apiserver itself. Programs hand it to config.NewDecoder. It links
// k8s.io/kubernetes, and package config therefore does not import it.
package apiserver

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install" // registers conversions
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
)

// Validator implements config.Validator. It has no state and may be used concurrently.
type Validator struct{}

// Validate implements config.Validator, by the function Validate... of the kind.
func (Validator) Validate(configuration runtime.Object) field.ErrorList {
	internal, err := legacyscheme.Scheme.UnsafeConvertToVersion(configuration, admissionregistration.SchemeGroupVersion)
	switch c := internal.(type) {
	case *admissionregistration.ValidatingWebhookConfiguration:
		return nameService(validation.ValidateValidatingWebhookConfiguration(c))
	case *admissionregistration.MutatingWebhookConfiguration:
		return nameService(validation.ValidateMutatingWebhookConfiguration(c))
	case *admissionregistration.ValidatingAdmissionPolicy:
		return validation.ValidateValidatingAdmissionPolicy(c)
	case *admissionregistration.ValidatingAdmissionPolicyBinding:
		return validation.ValidateValidatingAdmissionPolicyBinding(c)
	case *admissionregistration.MutatingAdmissionPolicy:
		return validation.ValidateMutatingAdmissionPolicy(c)
	case *admissionregistration.MutatingAdmissionPolicyBinding:
		return validation.ValidateMutatingAdmissionPolicyBinding(c)
	}
	return field.ErrorList{field.InternalError(nil, err)}
}

// ValidateOlder implements config.Validator. Kubernetes still has the rules of older versions, for updates of objects that were made under them
// (ValidateValidatingWebhookConfigurationUpdate): the old object selects the rules. So a configuration is validated as an update of an object
// that had all that the older versions allow: two hooks of one name, unknown side effects, and reviewVersions.
func (Validator) ValidateOlder(configuration runtime.Object, reviewVersions []string) field.ErrorList {
	internal, err := legacyscheme.Scheme.UnsafeConvertToVersion(configuration, admissionregistration.SchemeGroupVersion)
	unknown := admissionregistration.SideEffectClassUnknown
	switch c := internal.(type) {
	case *admissionregistration.ValidatingWebhookConfiguration:
		hook := admissionregistration.ValidatingWebhook{SideEffects: &unknown, AdmissionReviewVersions: reviewVersions}
		return nameService(validation.ValidateValidatingWebhookConfigurationUpdate(c, &admissionregistration.ValidatingWebhookConfiguration{
			Webhooks: []admissionregistration.ValidatingWebhook{hook, hook},
		}))
	case *admissionregistration.MutatingWebhookConfiguration:
		hook := admissionregistration.MutatingWebhook{SideEffects: &unknown, AdmissionReviewVersions: reviewVersions}
		return nameService(validation.ValidateMutatingWebhookConfigurationUpdate(c, &admissionregistration.MutatingWebhookConfiguration{
			Webhooks: []admissionregistration.MutatingWebhook{hook, hook},
		}))
	}
	return field.ErrorList{field.InternalError(nil, err)}
}

// nameService puts right which field of a service is missing: Kubernetes' validation hands name and namespace to
// webhook.ValidateWebhookService in the wrong order, so that it names the field that is present.
func nameService(errs field.ErrorList) field.ErrorList {
	const name, namespace = ".clientConfig.service.name", ".clientConfig.service.namespace"
	for _, err := range errs {
		if hook, ok := strings.CutSuffix(err.Field, namespace); ok {
			err.Field = hook + name
		} else if hook, ok := strings.CutSuffix(err.Field, name); ok {
			err.Field = hook + namespace
		}
	}
	return errs
}
