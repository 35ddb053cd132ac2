package config

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install" // registers defaults and conversions
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

// webhookConfiguration is a pointer to a webhook configuration of either kind, in the version T.
type webhookConfiguration[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

// readV1 completes a configuration as kube-apiserver does on create (pkg/registry/admissionregistration in
// k8s.io/kubernetes): metadata that the server owns is wiped, defaults are set, and the result is validated.
//
// It differs in two things on purpose. An empty clientConfig, which Kubernetes refuses, is accepted: the hook is served
// over streams. And metadata.name is required, since no API server generates one.
func readV1[T any, C webhookConfiguration[T]](c C) field.ErrorList {
	kinds, _, err := legacyscheme.Scheme.ObjectKinds(c)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	c.GetObjectKind().SetGroupVersionKind(kinds[0]) // an item of a list need not say it
	errs := createMeta(c)
	legacyscheme.Scheme.Default(c)
	return append(errs, validateWebhooks(c, nil)...)
}

// validateWebhooks asks Kubernetes' rules about a configuration of v1 that has its defaults, but about its matchConditions.
// before is nil for the rules of v1.
func validateWebhooks(c runtime.Object, before *older) field.ErrorList {
	internal, err := legacyscheme.Scheme.ConvertToVersion(c, admissionregistration.SchemeGroupVersion) // shares no memory
	switch checked := internal.(type) {
	case *admissionregistration.ValidatingWebhookConfiguration:
		for i := range checked.Webhooks {
			fillStream(&checked.Webhooks[i].ClientConfig)
			checked.Webhooks[i].MatchConditions = nil // document.conditions asks about them
		}
		return nameService(before.validating(checked))
	case *admissionregistration.MutatingWebhookConfiguration:
		for i := range checked.Webhooks {
			fillStream(&checked.Webhooks[i].ClientConfig)
			checked.Webhooks[i].MatchConditions = nil // document.conditions asks about them
		}
		return nameService(before.mutating(checked))
	}
	return field.ErrorList{field.InternalError(nil, err)}
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
func createMeta(m metav1.Object) field.ErrorList {
	m.SetNamespace("")
	m.SetUID("")
	m.SetSelfLink("")
	m.SetCreationTimestamp(metav1.Time{})
	m.SetDeletionTimestamp(nil)
	m.SetDeletionGracePeriodSeconds(nil)
	m.SetManagedFields(nil)
	m.SetGeneration(1)
	path := field.NewPath("metadata")
	var errs field.ErrorList
	if m.GetName() == "" && m.GetGenerateName() != "" {
		errs = append(errs, field.Required(path.Child("name"), "generateName alone is not enough: a document keeps its name"))
	}
	if m.GetResourceVersion() != "" {
		errs = append(errs, field.Forbidden(path.Child("resourceVersion"), "must not be set on an object to be created: remove it"))
	}
	return errs
}

// fillStream gives an empty clientConfig, of a hook that is served over streams, an address that passes validation.
func fillStream(c *admissionregistration.WebhookClientConfig) {
	if c.URL == nil && c.Service == nil && len(c.CABundle) == 0 {
		url := streamURL
		c.URL = &url
	}
}
