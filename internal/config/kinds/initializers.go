package kinds

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// InitializersKind is the kind of an InitializerConfiguration, here and in admissionregistration.k8s.io/v1alpha1.
const InitializersKind = "InitializerConfiguration"

// InitializersField is the list of initializers in an InitializerConfiguration.
const InitializersField = "initializers"

// InitializerTimeout is the time that an initializer may take, in seconds, unless its HookRoute has a timeout.
const InitializerTimeout = 5

// InitializerConfiguration is the kind of that name of Kubernetes 1.7 to 1.13, which had no Go type since.
type InitializerConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Initializers are called in this order, after the initializers of configurations whose names sort before this one. HookRoutes may change
	// the order.
	Initializers []Initializer `json:"initializers,omitempty"`
}

// Initializer changes objects before they exist in the cluster.
type Initializer struct {
	// Name identifies the initializer in the list of pending initializers of an object. It has three labels at least, as in "podimage.example.com".
	Name string `json:"name"`
	// Rules select the objects: an object is initialized if it matches any rule. Without rules there are none.
	Rules []InitializerRule `json:"rules,omitempty"`
	// FailurePolicy decides if the initializer has not acted in time: Ignore goes on without it, Fail refuses the object. Absent means Ignore. Through
	// ConfigService an initializer is created with Ignore, and an update sets Fail.
	FailurePolicy *admissionregistrationv1.FailurePolicyType `json:"failurePolicy,omitempty"`
}

// InitializerRule selects resources. It has no operations: initializers act on CREATE alone.
type InitializerRule struct {
	// APIGroups are the API groups of the resources: "" is the core group, and "*" stands for all and stands alone.
	APIGroups []string `json:"apiGroups"`
	// APIVersions are the API versions of the resources; "*" stands for all and stands alone.
	APIVersions []string `json:"apiVersions"`
	// Resources are the resources, without subresources; "*" stands for all but secrets and stands alone.
	Resources []string `json:"resources"`
}

// Webhooks returns the configuration as mutating webhooks that hosts serve, without defaults. The configuration must not be changed after.
// The rules about initializers are Kubernetes' rules about webhooks and the rules of ValidateResources.
func (c *InitializerConfiguration) Webhooks() *admissionregistrationv1.MutatingWebhookConfiguration {
	out := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"}, ObjectMeta: c.ObjectMeta,
	}
	for i := range c.Initializers {
		out.Webhooks = append(out.Webhooks, c.Initializers[i].webhook())
	}
	return out
}

// webhook returns the initializer as a webhook. Its side effects are None: when another replica takes an object over, the result of the first
// replica is dropped.
func (i *Initializer) webhook() admissionregistrationv1.MutatingWebhook {
	failurePolicy, matchPolicy := admissionregistrationv1.Ignore, admissionregistrationv1.Exact
	if i.FailurePolicy != nil {
		failurePolicy = *i.FailurePolicy
	}
	sideEffects, timeout := admissionregistrationv1.SideEffectClassNone, int32(InitializerTimeout)
	w := admissionregistrationv1.MutatingWebhook{
		Name: i.Name, FailurePolicy: &failurePolicy, MatchPolicy: &matchPolicy, SideEffects: &sideEffects, TimeoutSeconds: &timeout,
		AdmissionReviewVersions: []string{"v1"},
	}
	for _, r := range i.Rules {
		w.Rules = append(w.Rules, admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: r.APIGroups, APIVersions: r.APIVersions, Resources: r.Resources},
		})
	}
	return w
}

// ValidateResources returns an error for each subresource in a rule, since the CREATE of an object has none, and for a wildcard after other
// resources, which Kubernetes' rules about webhooks do not find.
func (c *InitializerConfiguration) ValidateResources() field.ErrorList {
	var errs field.ErrorList
	for i := range c.Initializers {
		rules := field.NewPath(InitializersField).Index(i).Child("rules")
		for n, rule := range c.Initializers[i].Rules {
			for m, resource := range rule.Resources {
				if strings.Contains(resource, "/") {
					errs = append(errs, field.Invalid(rules.Index(n).Child("resources").Index(m), resource,
						"an initializer has no subresources: name the resource alone"))
				}
			}
			if most := len(rule.Resources) - 1; most > 0 && rule.Resources[most] == "*" {
				errs = append(errs, field.Invalid(rules.Index(n).Child("resources"), rule.Resources,
					"if '*' is present, must not specify other resources"))
			}
		}
	}
	return errs
}
