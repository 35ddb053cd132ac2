package config

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// webhookDefaults are the defaults of a version of webhook configurations, that other versions do not share.
type webhookDefaults struct {
	failurePolicy  admissionregistrationv1.FailurePolicyType
	matchPolicy    admissionregistrationv1.MatchPolicyType
	timeoutSeconds int32
	sideEffects    admissionregistrationv1.SideEffectClass // empty for none
	reviewVersions []string                                // nil for none
}

// defaultsV1 returns the defaults that SetDefaults_ValidatingWebhook and SetDefaults_MutatingWebhook set, in
// k8s.io/kubernetes/pkg/apis/admissionregistration/v1.
func defaultsV1() webhookDefaults {
	return webhookDefaults{
		failurePolicy: admissionregistrationv1.Fail, matchPolicy: admissionregistrationv1.Equivalent, timeoutSeconds: 10,
	}
}

// defaultsV1beta1 returns the defaults that the same functions set, in k8s.io/kubernetes/pkg/apis/admissionregistration/v1beta1.
func defaultsV1beta1() webhookDefaults {
	return webhookDefaults{
		failurePolicy: admissionregistrationv1.Ignore, matchPolicy: admissionregistrationv1.Exact, timeoutSeconds: 30,
		sideEffects: admissionregistrationv1.SideEffectClassUnknown, reviewVersions: []string{"v1beta1"},
	}
}

// set sets the defaults of a configuration of either kind, and says which kind it is.
func (d *webhookDefaults) set(configuration runtime.Object) {
	switch c := configuration.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		c.APIVersion, c.Kind = admissionregistrationV1, validatingKind
		for i := range c.Webhooks {
			d.validating(&c.Webhooks[i])
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		c.APIVersion, c.Kind = admissionregistrationV1, mutatingKind
		for i := range c.Webhooks {
			d.mutating(&c.Webhooks[i])
		}
	}
}

func (d *webhookDefaults) validating(w *admissionregistrationv1.ValidatingWebhook) {
	setDefault(&w.FailurePolicy, d.failurePolicy)
	setDefault(&w.MatchPolicy, d.matchPolicy)
	setDefault(&w.TimeoutSeconds, d.timeoutSeconds)
	d.declare(&w.SideEffects, &w.AdmissionReviewVersions)
	setDefault(&w.NamespaceSelector, metav1.LabelSelector{})
	setDefault(&w.ObjectSelector, metav1.LabelSelector{})
	setPortAndScopes(&w.ClientConfig, w.Rules)
}

func (d *webhookDefaults) mutating(w *admissionregistrationv1.MutatingWebhook) {
	setDefault(&w.FailurePolicy, d.failurePolicy)
	setDefault(&w.MatchPolicy, d.matchPolicy)
	setDefault(&w.TimeoutSeconds, d.timeoutSeconds)
	setDefault(&w.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
	d.declare(&w.SideEffects, &w.AdmissionReviewVersions)
	setDefault(&w.NamespaceSelector, metav1.LabelSelector{})
	setDefault(&w.ObjectSelector, metav1.LabelSelector{})
	setPortAndScopes(&w.ClientConfig, w.Rules)
}

// declare sets the declarations of a webhook that some versions have defaults for.
func (d *webhookDefaults) declare(sideEffects **admissionregistrationv1.SideEffectClass, reviewVersions *[]string) {
	if d.sideEffects != "" {
		setDefault(sideEffects, d.sideEffects)
	}
	if len(*reviewVersions) == 0 && d.reviewVersions != nil {
		*reviewVersions = slices.Clone(d.reviewVersions)
	}
}

// setPortAndScopes is SetDefaults_ServiceReference and SetDefaults_Rule.
func setPortAndScopes(c *admissionregistrationv1.WebhookClientConfig, rules []admissionregistrationv1.RuleWithOperations) {
	if c.Service != nil {
		setDefault(&c.Service.Port, 443)
	}
	for i := range rules {
		setDefault(&rules[i].Scope, admissionregistrationv1.AllScopes)
	}
}

// setDefault sets a field that is not set.
func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
