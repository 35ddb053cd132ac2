package kube

import (
	"cmp"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// apiVersion is the API version of webhook configurations.
const apiVersion = "admissionregistration.k8s.io/v1"

// Hook describes one webhook of a configuration, with the values that suit
// tests where Kubernetes leaves a choice: no side effects, AdmissionReview
// v1, every scope, matchPolicy Equivalent.
type Hook struct {
	// Name is the webhook's name: at least three labels, as DNS names have.
	Name string
	// URL is where the webhook listens; https. Without one the clientConfig is
	// empty, which the mesh understands and Kubernetes does not.
	URL string
	// CABundle is the PEM of the authority that the webhook's certificate
	// comes from.
	CABundle []byte
	// Operations and Resources select the requests that it is called for.
	// Resources are of the core group unless Group says otherwise.
	Operations []admissionregistrationv1.OperationType
	Group      string
	Resources  []string
	// FailurePolicy is Fail when "".
	FailurePolicy admissionregistrationv1.FailurePolicyType
	// SideEffects is None when "".
	SideEffects admissionregistrationv1.SideEffectClass
	// Timeout is rounded down to seconds; 0 leaves it to Kubernetes (10 s).
	Timeout time.Duration
	// NamespaceSelector limits the webhook; nil is every namespace, which
	// disturbs tests that run at the same time: see [InNamespace].
	NamespaceSelector *metav1.LabelSelector
	// ObjectSelector limits the webhook by labels of the object; nil is every
	// object.
	ObjectSelector *metav1.LabelSelector
}

// InNamespace selects one namespace by the label that Kubernetes gives it.
func InNamespace(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: name}}
}

// Validating is a configuration of that name with the hooks in order.
func Validating(name string, hooks ...Hook) *admissionregistrationv1.ValidatingWebhookConfiguration {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiVersion, Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	for _, h := range hooks {
		configuration.Webhooks = append(configuration.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name:                    h.Name,
			ClientConfig:            h.clientConfig(),
			Rules:                   h.rules(),
			FailurePolicy:           h.failurePolicy(),
			TimeoutSeconds:          h.timeoutSeconds(),
			NamespaceSelector:       h.NamespaceSelector,
			ObjectSelector:          h.ObjectSelector,
			SideEffects:             ptr.To(cmp.Or(h.SideEffects, admissionregistrationv1.SideEffectClassNone)),
			AdmissionReviewVersions: []string{"v1"},
		})
	}
	return configuration
}

// Mutating is a configuration of that name with the hooks in order.
func Mutating(name string, hooks ...Hook) *admissionregistrationv1.MutatingWebhookConfiguration {
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiVersion, Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	for _, h := range hooks {
		configuration.Webhooks = append(configuration.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name:                    h.Name,
			ClientConfig:            h.clientConfig(),
			Rules:                   h.rules(),
			FailurePolicy:           h.failurePolicy(),
			TimeoutSeconds:          h.timeoutSeconds(),
			NamespaceSelector:       h.NamespaceSelector,
			ObjectSelector:          h.ObjectSelector,
			SideEffects:             ptr.To(cmp.Or(h.SideEffects, admissionregistrationv1.SideEffectClassNone)),
			AdmissionReviewVersions: []string{"v1"},
		})
	}
	return configuration
}

func (h Hook) clientConfig() admissionregistrationv1.WebhookClientConfig {
	if h.URL == "" {
		return admissionregistrationv1.WebhookClientConfig{}
	}
	return admissionregistrationv1.WebhookClientConfig{URL: ptr.To(h.URL), CABundle: h.CABundle}
}

func (h Hook) rules() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: h.Operations,
		Rule: admissionregistrationv1.Rule{
			APIGroups:   []string{h.Group},
			APIVersions: []string{"*"},
			Resources:   h.Resources,
		},
	}}
}

func (h Hook) failurePolicy() *admissionregistrationv1.FailurePolicyType {
	return ptr.To(cmp.Or(h.FailurePolicy, admissionregistrationv1.Fail))
}

func (h Hook) timeoutSeconds() *int32 {
	if h.Timeout == 0 {
		return nil
	}
	return ptr.To(int32(h.Timeout / time.Second))
}
