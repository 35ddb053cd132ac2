package policy_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// recorder is an observer that keeps the events, and the costs. It is the meter of its review too.
type recorder struct {
	events  []string
	costs   [][3]int64
	metered int64
}

func (r *recorder) Observe(o policy.Observation) {
	if o.Event != policy.Spent {
		r.events = append(r.events, fmt.Sprint(o.Policy.ID(), o.Field, " ", o.Event))
		return
	}
	r.costs = append(r.costs, [3]int64{o.Cost, o.Total, o.Budget})
}

func (r *recorder) Spend(_ context.Context, units int64) error {
	r.metered += units
	return nil
}

func (r *recorder) Reserve(int64) bool { return true } // it observes costs, so that they are counted

func TestAnObserverIsToldOfEachValue(t *testing.T) {
	l := newLaboratory(t)
	everything := &admissionregistrationv1.MatchResources{
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule([]string{"*"}, []string{"*"}, []string{"*/*"}, "*")},
	}
	condition := func(expression string) []admissionregistrationv1.MatchCondition {
		return []admissionregistrationv1.MatchCondition{{Name: "c", Expression: expression}}
	}
	validating := func(conditions []admissionregistrationv1.MatchCondition) match.Policy {
		p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		p.Spec.MatchConstraints, p.Spec.MatchConditions = everything, conditions
		p.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "true"}, {Expression: "false"}, {Expression: "object.nothing"}}
		return l.compile.Compile(p).Bind([]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{{}})
	}
	mutating := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	mutating.Spec.MatchConstraints = everything
	for _, expression := range []string{
		`[JSONPatch{op: "add", path: "/metadata/labels", value: {"a": "b"}}]`, `[JSONPatch{op: "test", path: "/kind", value: "None"}]`, `object.nothing`,
	} {
		mutating.Spec.Mutations = append(mutating.Spec.Mutations, admissionregistrationv1.Mutation{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: expression},
		})
	}
	for name, of := range map[string]struct {
		policy match.Policy
		want   []string
	}{
		"validations": {validating(condition("true")), []string{
			"ValidatingAdmissionPolicy/p 0", "ValidatingAdmissionPolicy/p 1", "ValidatingAdmissionPolicy/p.matchConditions[0] 3",
			"ValidatingAdmissionPolicy/p.validations[0] 3", "ValidatingAdmissionPolicy/p.validations[1] 4", "ValidatingAdmissionPolicy/p.validations[2] 5",
			"ValidatingAdmissionPolicy/p 9",
		}},
		"a condition that is false": {validating(condition("false")), []string{
			"ValidatingAdmissionPolicy/p 0", "ValidatingAdmissionPolicy/p 1", "ValidatingAdmissionPolicy/p.matchConditions[0] 4", "ValidatingAdmissionPolicy/p 9",
		}},
		"a condition that fails": {validating(condition("object.nothing")), []string{
			"ValidatingAdmissionPolicy/p 0", "ValidatingAdmissionPolicy/p 1", "ValidatingAdmissionPolicy/p.matchConditions[0] 5", "ValidatingAdmissionPolicy/p 9",
		}},
		"mutations": {l.compile.CompileMutating(mutating).Bind([]*admissionregistrationv1.MutatingAdmissionPolicyBinding{{}}), []string{
			"MutatingAdmissionPolicy/m 0", "MutatingAdmissionPolicy/m 1", "MutatingAdmissionPolicy/m.mutations[0] 6",
			"MutatingAdmissionPolicy/m.mutations[1] 7", "MutatingAdmissionPolicy/m.mutations[2] 5", "MutatingAdmissionPolicy/m 9",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(of.want, observed(t, l, of.policy).events); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// observed judges a Pod.
func observed(t *testing.T, l *laboratory, p match.Policy) *recorder {
	t.Helper()
	request := &admissionv1.AdmissionRequest{
		Operation: "CREATE", Kind: &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}, Name: "x", Namespace: "dev",
		Object: written(map[string]any{"metadata": map[string]any{"name": "x"}}, endpoints()[0]),
	}
	r := &recorder{}
	ctx := policy.WithReview(policy.WithObserver(t.Context(), r), r)
	if v, err := p.Judge(ctx, match.NewAttributes(request, l.known), nil, nil); v.AdmissionResponse == nil {
		t.Fatal(err)
	}
	return r
}

// TestAnObserverIsToldOfTheCosts: of conditions, of a variable that two validations read, of messages in the budget of validations, and of annotations.
func TestAnObserverIsToldOfTheCosts(t *testing.T) {
	p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule([]string{"*"}, []string{"*"}, []string{"*/*"}, "*")},
	}
	p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "c", Expression: "object.kind == 'Pod'"}}
	p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "name", Expression: "object.metadata.name"}}
	p.Spec.Validations = []admissionregistrationv1.Validation{
		{Expression: "variables.name == 'x'"}, {Expression: "variables.name != 'x'", MessageExpression: "object.metadata.name"},
	}
	p.Spec.AuditAnnotations = []admissionregistrationv1.AuditAnnotation{{Key: "a", ValueExpression: "object.metadata.name"}}
	l := newLaboratory(t)
	r := observed(t, l, l.compile.Compile(p).Bind([]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{{}}))
	const conditions, policy = 2_500_000, 10_000_000
	if diff := cmp.Diff([][3]int64{
		{3, 3, conditions}, {3, 3, policy}, {3, 6, policy}, {3, 9, policy}, {3, 12, policy}, {3, 3, policy},
	}, r.costs); diff != "" {
		t.Error(diff)
	}
	sum := int64(0)
	for _, c := range r.costs {
		sum += c[0]
	}
	if sum != r.metered {
		t.Errorf("observed %d units, metered %d", sum, r.metered)
	}
}
