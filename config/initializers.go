package config

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// initializersField is the list of initializers in an InitializerConfiguration.
const initializersField = "initializers"

// InitializerTimeout is how long an initializer may take, in seconds, unless its HookRoute has a timeout (spec/2).
const InitializerTimeout = 5

// initializers is the InitializerConfiguration of Kubernetes 1.7 to 1.13.
type initializers struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Initializers []initializer `json:"initializers"`
}

// initializer is one initializer. FailurePolicy was a field of 1.7 and 1.8 only.
type initializer struct {
	Name          string                                     `json:"name"`
	Rules         []initializerRule                          `json:"rules"`
	FailurePolicy *admissionregistrationv1.FailurePolicyType `json:"failurePolicy"`
}

// initializerRule is a rule without operations: initializers are of CREATE alone.
type initializerRule struct {
	APIGroups   []string `json:"apiGroups"`
	APIVersions []string `json:"apiVersions"`
	Resources   []string `json:"resources"`
}

// readInitializers is readV1 for an InitializerConfiguration: by the rules of Kubernetes 1.8 but with failurePolicy Fail (spec/2), and
// then as mutating webhooks of v1 say the same.
func readInitializers(c *initializers) (*admissionregistrationv1.MutatingWebhookConfiguration, field.ErrorList) {
	errs := createMeta(&c.ObjectMeta)
	v1 := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationV1, Kind: mutatingKind},
		ObjectMeta: c.ObjectMeta,
	}
	for i := range c.Initializers {
		v1.Webhooks = append(v1.Webhooks, c.Initializers[i].webhook())
		errs = append(errs, c.Initializers[i].validate(field.NewPath(initializersField).Index(i))...)
	}
	legacyscheme.Scheme.Default(v1)
	for _, err := range validateWebhooks(v1, nil) {
		err.Field = initializerField(err.Field)
		errs = append(errs, err)
	}
	return v1, errs
}

// validate checks what webhooks may have and initializers may not: subresources, which no CREATE of an object names.
func (i *initializer) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for n, rule := range i.Rules {
		for m, resource := range rule.Resources {
			if strings.Contains(resource, "/") {
				errs = append(errs, field.Invalid(path.Child("rules").Index(n).Child("resources").Index(m), resource,
					"an initializer has no subresources: name the resource alone"))
			}
		}
	}
	return errs
}

// webhook is the initializer as a mutating webhook that streams serve. A second replica may take an object over: what the first one made of
// it is not used then, so it has no side effects by this measure.
func (i *initializer) webhook() admissionregistrationv1.MutatingWebhook {
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

// initializerField is the path of a field of a MutatingWebhookConfiguration as the document has it.
func initializerField(path string) string {
	if rest, ok := strings.CutPrefix(path, "webhooks"); ok {
		return initializersField + rest
	}
	return path
}

// ClosedAtFirst returns the paths of failurePolicy Fail in a document whose kind lets no hook begin so (spec/2): external admission hooks and
// initializers. A hook of it is created with Ignore, and closed by an update.
func (o *Object) ClosedAtFirst() []string {
	var fields []string
	add := func(list string, i int, policy *admissionregistrationv1.FailurePolicyType) {
		if policy != nil && *policy == admissionregistrationv1.Fail {
			fields = append(fields, fmt.Sprintf("%s[%d].failurePolicy", list, i))
		}
	}
	switch {
	case o.Initializes() && o.Mutating != nil:
		for i := range o.Mutating.Webhooks {
			add(initializersField, i, o.Mutating.Webhooks[i].FailurePolicy)
		}
	case o.IsExternal() && o.Validating != nil:
		for i := range o.Validating.Webhooks {
			add(externalHooksField, i, o.Validating.Webhooks[i].FailurePolicy)
		}
	}
	return fields
}
