package match

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// A selector on the name of a namespace needs no data of the cluster.
func TestSelectorsByNameNeedNoLabels(t *testing.T) {
	not := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: []string{value}}}}
	}
	both := not("kubernetes.io/metadata.name", "kube-system")
	both.MatchLabels = map[string]string{"env": "prod"}
	for name, tt := range map[string]struct {
		selector            *metav1.LabelSelector
		resource, namespace string
		match, refused      bool
	}{
		"a namespace that is left out":           {not("kubernetes.io/metadata.name", "kube-system"), "pods", "kube-system", false, false},
		"another one":                            {not("kubernetes.io/metadata.name", "kube-system"), "pods", "default", true, false},
		"one by its name":                        {&metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "default"}}, "pods", "default", true, false},
		"no namespace":                           {not("kubernetes.io/metadata.name", "kube-system"), "nodes", "", true, false},
		"by another label":                       {not("env", "prod"), "pods", "default", false, true},
		"by the name and another label":          {both, "pods", "default", false, true},
		"a namespace itself, which is looked up": {not("kubernetes.io/metadata.name", "kube-system"), "namespaces", "default", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := Compile(Input{Objects: []Object{{Validating: &admissionregistrationv1.ValidatingWebhookConfiguration{
				Webhooks: []admissionregistrationv1.ValidatingWebhook{{
					Name: "a.test.dev", NamespaceSelector: tt.selector, Rules: []admissionregistrationv1.RuleWithOperations{{
						Operations: []admissionregistrationv1.OperationType{"*"},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
					}},
				}},
			}}}})
			d := s.Hooks()[0].ShouldCall(t.Context(), NewAttributes(&admissionv1.AdmissionRequest{
				Operation: "DELETE", Namespace: tt.namespace, Name: "n", Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: tt.resource},
			}, Unknown{}))
			if d.Match != tt.match || (d.Err != nil) != tt.refused {
				t.Errorf("decision %+v", d)
			}
		})
	}
}
