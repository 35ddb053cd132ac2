package match_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// The random comparison ([TestEveryDecisionIsThatOfKubernetes]) covers these rules too. Here each stands by itself, as a reader looks for it.

func podWith(env string) *admissionv1.Object {
	return &admissionv1.Object{Raw: []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","labels":{"env":"` + env + `"}}}`)}
}

// decisionOf is the decision of a hook with a webhook's selectors and conditions, for a Pod in the namespace "dev" unless change says otherwise.
func decisionOf(t *testing.T, hook admissionregistrationv1.ValidatingWebhook, change func(*admissionv1.AdmissionRequest)) match.Decision {
	t.Helper()
	o := validating("", "a", "hook.io")
	w := &o.Validating.Webhooks[0]
	w.ObjectSelector, w.NamespaceSelector = hook.ObjectSelector, hook.NamespaceSelector
	w.MatchConditions, w.FailurePolicy = hook.MatchConditions, hook.FailurePolicy
	req := createPod()
	change(req)
	return compile(t, match.Input{Objects: []match.Object{o}}).Hooks()[0].ShouldCall(t.Context(), match.NewAttributes(req, namespaces{}))
}

func TestObjectSelectorMatchesTheObjectOrTheOldObject(t *testing.T) {
	hook := admissionregistrationv1.ValidatingWebhook{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}}
	prodPod, devPod := podWith("prod"), podWith("dev")
	for name, tt := range map[string]struct {
		operation   string
		object, old *admissionv1.Object
		want        bool
	}{
		"CREATE, the object matches":         {"CREATE", prodPod, nil, true},
		"CREATE, the object does not":        {"CREATE", devPod, nil, false},
		"UPDATE, the object alone matches":   {"UPDATE", prodPod, devPod, true},
		"UPDATE, the old one alone matches":  {"UPDATE", devPod, prodPod, true},
		"UPDATE, neither matches":            {"UPDATE", devPod, devPod, false},
		"DELETE, the old object matches":     {"DELETE", nil, prodPod, true},
		"DELETE, the old object does not":    {"DELETE", nil, devPod, false},
		"DELETE, the API server sent none":   {"DELETE", nil, nil, false},
		"CONNECT, an object without a label": {"CONNECT", &admissionv1.Object{Raw: []byte(`{"kind":"PodExecOptions","apiVersion":"v1"}`)}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := decisionOf(t, hook, func(r *admissionv1.AdmissionRequest) {
				r.Operation, r.Object, r.OldObject = tt.operation, tt.object, tt.old
			})
			if d.Match != tt.want || d.Err != nil {
				t.Errorf("decision %+v, want match %v", d, tt.want)
			}
		})
	}
}

func TestNamespaceSelectorOfANamespaceLooksAtItsNewLabelsAndOfClusterScopedObjectsAtNone(t *testing.T) {
	hook := admissionregistrationv1.ValidatingWebhook{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}}
	namespace := func(env string) *admissionv1.Object {
		return &admissionv1.Object{Raw: []byte(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"dev","labels":{"env":"` + env + `"}}}`)}
	}
	for name, tt := range map[string]struct {
		operation, resource, namespace string
		object                         *admissionv1.Object
		want                           bool
	}{
		"a Pod, by the labels of its namespace":                  {"CREATE", "pods", "dev", podWith("prod"), false},
		"a Namespace that is created, by its own labels":         {"CREATE", "namespaces", "dev", namespace("prod"), true},
		"a Namespace that is updated, by its new labels":         {"UPDATE", "namespaces", "dev", namespace("prod"), true},
		"a Namespace that is deleted, by the labels that it has": {"DELETE", "namespaces", "dev", nil, false},
		"a cluster-scoped object matches every selector":         {"CREATE", "nodes", "", podWith("dev"), true},
	} {
		t.Run(name, func(t *testing.T) {
			d := decisionOf(t, hook, func(r *admissionv1.AdmissionRequest) {
				r.Operation, r.Namespace, r.Object = tt.operation, tt.namespace, tt.object
				r.Resource = &admissionv1.GroupVersionResource{Version: "v1", Resource: tt.resource}
			})
			if d.Match != tt.want || d.Err != nil {
				t.Errorf("decision %+v, want match %v", d, tt.want)
			}
		})
	}
}

func TestAnErrorOfAMatchConditionRefusesOrSkipsByFailurePolicy(t *testing.T) {
	fail, ignore := admissionregistrationv1.Fail, admissionregistrationv1.Ignore
	failing := admissionregistrationv1.MatchCondition{Name: "fails", Expression: "object.missing.missing == 1"}
	never := admissionregistrationv1.MatchCondition{Name: "never", Expression: "1 > 2"}
	for name, tt := range map[string]struct {
		policy     *admissionregistrationv1.FailurePolicyType
		conditions []admissionregistrationv1.MatchCondition
		refused    bool
	}{
		"Fail":                           {&fail, []admissionregistrationv1.MatchCondition{failing}, true},
		"Ignore":                         {&ignore, []admissionregistrationv1.MatchCondition{failing}, false},
		"Fail, another one is false":     {&fail, []admissionregistrationv1.MatchCondition{failing, never}, false},
		"no policy, which is that of v1": {nil, []admissionregistrationv1.MatchCondition{failing}, true},
	} {
		t.Run(name, func(t *testing.T) {
			hook := admissionregistrationv1.ValidatingWebhook{MatchConditions: tt.conditions, FailurePolicy: tt.policy}
			d := decisionOf(t, hook, func(*admissionv1.AdmissionRequest) {})
			if d.Match || (d.Err != nil) != tt.refused {
				t.Errorf("decision %+v, want refused %v", d, tt.refused)
			}
		})
	}
}
