package config

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	defaultsv1 "k8s.io/kubernetes/pkg/apis/admissionregistration/v1"
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
)

// The apiVersions of webhook configurations.
const (
	admissionregistrationV1       = "admissionregistration.k8s.io/v1"
	admissionregistrationV1beta1  = "admissionregistration.k8s.io/v1beta1"
	admissionregistrationV1alpha1 = "admissionregistration.k8s.io/v1alpha1"
)

// The kinds of webhook configurations.
const (
	validatingKind = "ValidatingWebhookConfiguration"
	mutatingKind   = "MutatingWebhookConfiguration"
)

// streamURL stands in for an empty clientConfig while Kubernetes' validation looks at a hook that streams will serve.
const streamURL = "https://streams.invalid/"

// readValidating completes a configuration as kube-apiserver does on create (pkg/registry/admissionregistration in
// k8s.io/kubernetes): metadata that the server owns is wiped, defaults are set, and the result is validated.
//
// It differs in two things on purpose. An empty clientConfig, which Kubernetes refuses, is accepted: the hook is served
// over streams. And metadata.name is required, since nobody is here to generate one.
func readValidating(c *admissionregistrationv1.ValidatingWebhookConfiguration) field.ErrorList {
	c.TypeMeta = metav1.TypeMeta{APIVersion: admissionregistrationV1, Kind: validatingKind} // an item of a list need not say it
	errs := createMeta(&c.ObjectMeta)
	defaultsv1.SetObjectDefaults_ValidatingWebhookConfiguration(c)
	return append(errs, validateValidating(c, validation.ValidateValidatingWebhookConfiguration)...)
}

// readMutating is readValidating for the other kind.
func readMutating(c *admissionregistrationv1.MutatingWebhookConfiguration) field.ErrorList {
	c.TypeMeta = metav1.TypeMeta{APIVersion: admissionregistrationV1, Kind: mutatingKind} // an item of a list need not say it
	errs := createMeta(&c.ObjectMeta)
	defaultsv1.SetObjectDefaults_MutatingWebhookConfiguration(c)
	return append(errs, validateMutating(c, validation.ValidateMutatingWebhookConfiguration)...)
}

// validateValidating asks Kubernetes' rules about a configuration that has its defaults, but about its matchConditions.
func validateValidating(
	c *admissionregistrationv1.ValidatingWebhookConfiguration,
	rules func(*admissionregistration.ValidatingWebhookConfiguration) field.ErrorList,
) field.ErrorList {
	checked := c.DeepCopy() // the conversion shares memory
	for i := range checked.Webhooks {
		fillStream(&checked.Webhooks[i].ClientConfig)
		checked.Webhooks[i].MatchConditions = nil // document.conditions asks about them
	}
	var internal admissionregistration.ValidatingWebhookConfiguration
	err := defaultsv1.Convert_v1_ValidatingWebhookConfiguration_To_admissionregistration_ValidatingWebhookConfiguration(checked, &internal, nil)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return nameService(rules(&internal))
}

// validateMutating is validateValidating for the other kind.
func validateMutating(
	c *admissionregistrationv1.MutatingWebhookConfiguration,
	rules func(*admissionregistration.MutatingWebhookConfiguration) field.ErrorList,
) field.ErrorList {
	checked := c.DeepCopy() // the conversion shares memory
	for i := range checked.Webhooks {
		fillStream(&checked.Webhooks[i].ClientConfig)
		checked.Webhooks[i].MatchConditions = nil // document.conditions asks about them
	}
	var internal admissionregistration.MutatingWebhookConfiguration
	err := defaultsv1.Convert_v1_MutatingWebhookConfiguration_To_admissionregistration_MutatingWebhookConfiguration(checked, &internal, nil)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return nameService(rules(&internal))
}

// nameService puts right which field of a service is missing: Kubernetes' validation hands name and namespace to
// webhook.ValidateWebhookService the wrong way round, so that it asks for the one that is there.
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

// createMeta does to metadata what kube-apiserver does before it validates a new cluster-scoped object: it wipes what
// the server sets itself (WipeObjectMetaSystemFields, EnsureObjectNamespaceMatchesRequestNamespace, the field manager,
// PrepareForCreate), and refuses a resourceVersion as its storage does.
func createMeta(m *metav1.ObjectMeta) field.ErrorList {
	m.Namespace, m.UID, m.SelfLink = "", "", "" //nolint:staticcheck // the server wipes the field because it is deprecated
	m.CreationTimestamp, m.DeletionTimestamp, m.DeletionGracePeriodSeconds = metav1.Time{}, nil, nil
	m.ManagedFields = nil
	m.Generation = 1
	path := field.NewPath("metadata")
	var errs field.ErrorList
	if m.Name == "" && m.GenerateName != "" {
		errs = append(errs, field.Required(path.Child("name"), "generateName alone is not enough: a document keeps its name"))
	}
	if m.ResourceVersion != "" {
		errs = append(errs, field.Forbidden(path.Child("resourceVersion"), "must not be set on an object to be created: remove it"))
	}
	return errs
}

// isEmpty reports whether a clientConfig says nothing: the hook can only be served over streams.
func isEmpty(c *admissionregistrationv1.WebhookClientConfig) bool {
	return c.URL == nil && c.Service == nil && len(c.CABundle) == 0
}

// fillStream gives an empty clientConfig an address that passes validation.
func fillStream(c *admissionregistrationv1.WebhookClientConfig) {
	if isEmpty(c) {
		url := streamURL
		c.URL = &url
	}
}
