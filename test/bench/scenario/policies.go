package scenario

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// ManyBindings is how many bindings the policy of a target has.
const ManyBindings = 1024

// digest is in the name of an image that is named by digest.
const digest = "@sha256:"

// Checking are validating hooks, or policies, that check the images of a Pod.
func Checking(hooks int) Scenario {
	return Scenario{Stage: Validate, Hooks: hooks, Hosts: hooks, Bytes: Small, Checks: true}
}

// Bound is one policy with bindings that all apply.
func Bound(bindings int) Scenario {
	s := Checking(1)
	s.Bindings = bindings
	return s
}

// NamedByDigest is the check of a hook in Go: every image of the Pod is named by digest.
func NamedByDigest(pod *corev1.Pod) error {
	for _, c := range pod.Spec.Containers {
		if !strings.Contains(c.Image, digest) {
			return fmt.Errorf("image %s of container %s is not named by digest", c.Image, c.Name)
		}
	}
	return nil
}

// BoundPolicy is the same check as a policy.
type BoundPolicy struct {
	// Document is the policy, and Bindings are its bindings, with Kubernetes' defaults.
	Document *admissionregistrationv1.ValidatingAdmissionPolicy
	Bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
}

// Policies are the policies in the place of the scenario's hooks.
func (s Scenario) Policies() []BoundPolicy {
	var all []BoundPolicy
	for i := range s.Hooks {
		all = append(all, s.policy(i))
	}
	return all
}

func (s Scenario) policy(hook int) BoundPolicy {
	document := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: Hook(hook)},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{},
			Validations: []admissionregistrationv1.Validation{{
				Expression: "object.spec.containers.all(c, c.image.contains('" + digest + "'))", Message: "images are named by digest",
			}},
		},
	}
	for _, rule := range s.rules(hook) {
		document.Spec.MatchConstraints.ResourceRules = append(document.Spec.MatchConstraints.ResourceRules,
			admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: rule})
	}
	legacyscheme.Scheme.Default(document)
	p := BoundPolicy{Document: document}
	for i := range max(1, s.Bindings) {
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", document.Name, i)},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: document.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		}
		legacyscheme.Scheme.Default(binding)
		p.Bindings = append(p.Bindings, binding)
	}
	return p
}
