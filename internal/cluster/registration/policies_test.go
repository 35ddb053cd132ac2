package registration_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

// TestEntriesHaveTheNamespacesThatAllBindingsOfAPolicySelect has selectors of a policy and of its bindings, as kubectl reads them; empty for none.
func TestEntriesHaveTheNamespacesThatAllBindingsOfAPolicySelect(t *testing.T) {
	for name, of := range map[string]struct {
		policy   string
		bindings []string
		want     string
	}{
		"no selector":                        {"", []string{""}, ""},
		"one binding":                        {"", []string{"env=prod"}, "env=prod"},
		"bindings that have one":             {"", []string{"env=prod", "env=prod"}, "env=prod"},
		"bindings that differ":               {"", []string{"env=prod", "env=dev"}, "env in (dev,prod)"},
		"bindings about other labels":        {"", []string{"env=prod", "team"}, ""},
		"a label that each binding asks for": {"", []string{"env=prod,team", "team=a"}, "team"},
		"a namespace that each leaves out":   {"", []string{"env notin (dev),team", "env notin (dev,test)"}, "env notin (dev)"},
		"a binding without":                  {"", []string{"env=prod", ""}, ""},
		"the selector of a policy":           {"team", []string{""}, "team"},
		"both":                               {"team", []string{"env=prod"}, "env in (prod),team"},
		"both, about the same label":         {"env=dev", []string{"env=prod"}, "env=dev,env in (prod)"},
		"a policy, bindings that differ":     {"team", []string{"env=prod", "env=dev"}, "env in (dev,prod),team"},
	} {
		t.Run(name, func(t *testing.T) {
			resources := func(namespaces string) *admissionregistrationv1.MatchResources {
				selector, err := metav1.ParseToLabelSelector(namespaces)
				if err != nil {
					t.Fatal(err)
				}
				return &admissionregistrationv1.MatchResources{NamespaceSelector: selector, ObjectSelector: &metav1.LabelSelector{}}
			}
			validating := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			validating.Spec.MatchConstraints = resources(of.policy)
			rule := admissionregistrationv1.NamedRuleWithOperations{}
			rule.Operations, rule.APIGroups = []admissionregistrationv1.OperationType{admissionregistrationv1.Create}, []string{""}
			rule.APIVersions, rule.Resources = []string{"v1"}, []string{"pods"}
			validating.Spec.MatchConstraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{rule}
			mutating := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			mutating.Spec.MatchConstraints = validating.Spec.MatchConstraints
			var bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
			var others []*admissionregistrationv1.MutatingAdmissionPolicyBinding
			for _, namespaces := range of.bindings {
				b, other := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.MutatingAdmissionPolicyBinding{}
				if namespaces != "" {
					b.Spec.MatchResources, other.Spec.MatchResources = resources(namespaces), resources(namespaces)
				}
				b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
				bindings, others = append(bindings, b), append(others, other)
			}
			compiler := policy.NewCompiler()
			r := plan(t, compile(t, match.Input{Revision: "1", Objects: []match.Object{
				{Policy: compiler.Compile(validating).Bind(bindings)}, {Policy: compiler.CompileMutating(mutating).Bind(others)},
			}}), registration.Options{URL: "https://portcullis.example.com:8443"})
			for _, got := range []*metav1.LabelSelector{r.Validating.Webhooks[0].NamespaceSelector, r.Mutating.Webhooks[0].NamespaceSelector} {
				if text := metav1.FormatLabelSelector(got); text != of.want && (of.want != "" || text != "<none>") {
					t.Errorf("the entry selects %s, want %q", text, of.want)
				}
			}
		})
	}
}
