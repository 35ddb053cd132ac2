package config

import (
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	defaultsv1 "k8s.io/kubernetes/pkg/apis/admissionregistration/v1"
	defaultsv1beta1 "k8s.io/kubernetes/pkg/apis/admissionregistration/v1beta1"
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
)

// readValidatingV1beta1 is readValidating for a document of v1beta1: with the defaults and the validation of that version,
// and then as v1 says the same.
func readValidatingV1beta1(
	c *admissionregistrationv1beta1.ValidatingWebhookConfiguration,
) (*admissionregistrationv1.ValidatingWebhookConfiguration, field.ErrorList) {
	errs := createMeta(&c.ObjectMeta)
	defaultsv1beta1.SetObjectDefaults_ValidatingWebhookConfiguration(c)
	var internal admissionregistration.ValidatingWebhookConfiguration
	v1 := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := errors.Join(
		defaultsv1beta1.Convert_v1beta1_ValidatingWebhookConfiguration_To_admissionregistration_ValidatingWebhookConfiguration(c, &internal, nil),
		defaultsv1.Convert_admissionregistration_ValidatingWebhookConfiguration_To_v1_ValidatingWebhookConfiguration(&internal, v1, nil),
	); err != nil {
		return nil, append(errs, field.InternalError(nil, err))
	}
	v1.TypeMeta = metav1.TypeMeta{APIVersion: admissionregistrationV1, Kind: validatingKind}
	return v1, append(errs, validateValidating(v1, older{}.validating)...)
}

// readMutatingV1beta1 is readValidatingV1beta1 for the other kind.
func readMutatingV1beta1(
	c *admissionregistrationv1beta1.MutatingWebhookConfiguration,
) (*admissionregistrationv1.MutatingWebhookConfiguration, field.ErrorList) {
	errs := createMeta(&c.ObjectMeta)
	defaultsv1beta1.SetObjectDefaults_MutatingWebhookConfiguration(c)
	var internal admissionregistration.MutatingWebhookConfiguration
	v1 := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := errors.Join(
		defaultsv1beta1.Convert_v1beta1_MutatingWebhookConfiguration_To_admissionregistration_MutatingWebhookConfiguration(c, &internal, nil),
		defaultsv1.Convert_admissionregistration_MutatingWebhookConfiguration_To_v1_MutatingWebhookConfiguration(&internal, v1, nil),
	); err != nil {
		return nil, append(errs, field.InternalError(nil, err))
	}
	v1.TypeMeta = metav1.TypeMeta{APIVersion: admissionregistrationV1, Kind: mutatingKind}
	return v1, append(errs, validateMutating(v1, older{}.mutating)...)
}

// older are the rules of the versions before v1. Kubernetes still has them, for updates of objects that were made under
// them (ValidateValidatingWebhookConfigurationUpdate): what the object was before says which rules hold. So a document is
// validated as an update of one that had what the older versions allow: two hooks of one name, and unknown side effects.
type older struct {
	// reviewVersions are admissionReviewVersions of that object. One that no API server knows today allows others.
	reviewVersions []string
}

func (o older) validating(c *admissionregistration.ValidatingWebhookConfiguration) field.ErrorList {
	unknown := admissionregistration.SideEffectClassUnknown
	hook := admissionregistration.ValidatingWebhook{SideEffects: &unknown, AdmissionReviewVersions: o.reviewVersions}
	return validation.ValidateValidatingWebhookConfigurationUpdate(c, &admissionregistration.ValidatingWebhookConfiguration{
		Webhooks: []admissionregistration.ValidatingWebhook{hook, hook},
	})
}

func (o older) mutating(c *admissionregistration.MutatingWebhookConfiguration) field.ErrorList {
	unknown := admissionregistration.SideEffectClassUnknown
	hook := admissionregistration.MutatingWebhook{SideEffects: &unknown, AdmissionReviewVersions: o.reviewVersions}
	return validation.ValidateMutatingWebhookConfigurationUpdate(c, &admissionregistration.MutatingWebhookConfiguration{
		Webhooks: []admissionregistration.MutatingWebhook{hook, hook},
	})
}

// V1beta1 is the webhook configuration as admissionregistration.k8s.io/v1beta1 says it, whatever version it was written
// in. Nothing is lost. The caller owns the result. Objects of other kinds are an error.
func (o *Object) V1beta1() (runtime.Object, error) {
	switch {
	case o.Validating != nil:
		return validatingToV1beta1(o.Validating.DeepCopy()) // the conversion shares memory
	case o.Mutating != nil:
		return mutatingToV1beta1(o.Mutating.DeepCopy())
	}
	return nil, fmt.Errorf("%s is not a webhook configuration", o.Key)
}

func validatingToV1beta1(c *admissionregistrationv1.ValidatingWebhookConfiguration) (runtime.Object, error) {
	var internal admissionregistration.ValidatingWebhookConfiguration
	v1beta1 := &admissionregistrationv1beta1.ValidatingWebhookConfiguration{}
	if err := errors.Join(
		defaultsv1.Convert_v1_ValidatingWebhookConfiguration_To_admissionregistration_ValidatingWebhookConfiguration(c, &internal, nil),
		defaultsv1beta1.Convert_admissionregistration_ValidatingWebhookConfiguration_To_v1beta1_ValidatingWebhookConfiguration(&internal, v1beta1, nil),
	); err != nil {
		return nil, fmt.Errorf("converting to v1beta1: %w", err)
	}
	v1beta1.TypeMeta = metav1.TypeMeta{APIVersion: admissionregistrationV1beta1, Kind: validatingKind}
	return v1beta1, nil
}

func mutatingToV1beta1(c *admissionregistrationv1.MutatingWebhookConfiguration) (runtime.Object, error) {
	var internal admissionregistration.MutatingWebhookConfiguration
	v1beta1 := &admissionregistrationv1beta1.MutatingWebhookConfiguration{}
	if err := errors.Join(
		defaultsv1.Convert_v1_MutatingWebhookConfiguration_To_admissionregistration_MutatingWebhookConfiguration(c, &internal, nil),
		defaultsv1beta1.Convert_admissionregistration_MutatingWebhookConfiguration_To_v1beta1_MutatingWebhookConfiguration(&internal, v1beta1, nil),
	); err != nil {
		return nil, fmt.Errorf("converting to v1beta1: %w", err)
	}
	v1beta1.TypeMeta = metav1.TypeMeta{APIVersion: admissionregistrationV1beta1, Kind: mutatingKind}
	return v1beta1, nil
}
