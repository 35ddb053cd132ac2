package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
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

// webhookConfiguration is a pointer to a webhook configuration T of v1.
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
func readV1[T any, C webhookConfiguration[T]](v Validator) func(C) field.ErrorList {
	return func(c C) field.ErrorList {
		defaults := defaultsV1()
		errs := createMeta(c)
		defaults.set(c)
		return append(errs, validate(c, v.Validate)...)
	}
}

// readV1beta1 is readV1 for a document of v1beta1: with the defaults and the validation of that version. v1 has the same fields.
func readV1beta1[T any, C webhookConfiguration[T]](v Validator) func(C) field.ErrorList {
	return func(c C) field.ErrorList {
		defaults := defaultsV1beta1()
		errs := createMeta(c)
		defaults.set(c)
		return append(errs, validate(c, older(v))...)
	}
}

// createMeta treats metadata as kube-apiserver does before it validates a new cluster-scoped object: it wipes the fields
// that the server sets itself (WipeObjectMetaSystemFields, EnsureObjectNamespaceMatchesRequestNamespace, the field manager,
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
