package policy_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// TestAPolicyThatDoesNotApplySaysWhy has the bindings of a policy with params: a selector that meets the request or not, and the name of a ConfigMap.
func TestAPolicyThatDoesNotApplySaysWhy(t *testing.T) {
	const yes, no = "dev", "prod" // values of the label of the Pod
	type binding struct{ env, param string }
	for name, of := range map[string]struct {
		condition string
		bindings  []binding
		want      string
	}{
		"it applies":                                   {"true", []binding{{yes, "limits"}}, ""},
		"no binding":                                   {"true", []binding{{no, "limits"}}, match.SkipBindings},
		"no param":                                     {"true", []binding{{yes, "none"}}, match.SkipParams},
		"a condition":                                  {"false", []binding{{yes, "limits"}}, match.SkipConditions},
		"the furthest binding counts, the first":       {"false", []binding{{yes, "limits"}, {yes, "none"}, {no, "limits"}}, match.SkipConditions},
		"the furthest binding counts, the last":        {"true", []binding{{no, "limits"}, {yes, "none"}}, match.SkipParams},
		"one of its bindings applies":                  {"true", []binding{{no, "limits"}, {yes, "limits"}, {yes, "none"}}, ""},
		"with one of its params a condition is true":   {"params.metadata.name == 'more'", []binding{{yes, "limits"}, {yes, "more"}}, ""},
		"a failure, which failurePolicy Fail refuses":  {"object.missing == 1", []binding{{yes, "limits"}}, ""},
		"a condition that is false beside one without": {"params.metadata.name == 'more'", []binding{{yes, "limits"}, {no, "more"}}, match.SkipConditions},
	} {
		t.Run(name, func(t *testing.T) {
			validating, mutating := &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.MutatingAdmissionPolicy{}
			validating.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
			validating.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{}
			validating.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "c", Expression: of.condition}}
			validating.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "true"}}
			mutating.Spec.ParamKind, mutating.Spec.MatchConstraints = validating.Spec.ParamKind, validating.Spec.MatchConstraints
			mutating.Spec.MatchConditions = validating.Spec.MatchConditions
			mutating.Spec.Mutations = []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: "[]"},
			}}
			var bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
			var others []*admissionregistrationv1.MutatingAdmissionPolicyBinding
			for _, b := range of.bindings {
				allow := admissionregistrationv1.AllowAction
				one, other := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.MutatingAdmissionPolicyBinding{}
				one.Spec.ParamRef = &admissionregistrationv1.ParamRef{Name: b.param, Namespace: "dev", ParameterNotFoundAction: &allow}
				one.Spec.MatchResources = &admissionregistrationv1.MatchResources{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": b.env}}}
				one.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
				other.Spec.ParamRef, other.Spec.MatchResources = one.Spec.ParamRef, one.Spec.MatchResources
				bindings, others = append(bindings, one), append(others, other)
			}
			request := benchRequest()
			request.Object = &admissionv1.Object{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"env":"dev"}}}`)}
			compiler := policy.NewCompiler()
			for _, p := range []match.Policy{compiler.Compile(validating).Bind(bindings), compiler.CompileMutating(mutating).Bind(others)} {
				v, err := p.Judge(policy.WithReview(t.Context(), nil), match.NewAttributes(request, newCluster(t)), nil, nil)

				if v.Why != of.want || of.want != "" && (err != nil || !v.GetAllowed()) {
					t.Errorf("%s: skip %q, want %q: %v %v", p.ID(), v.Why, of.want, v.AdmissionResponse, err)
				}
			}
		})
	}
}
