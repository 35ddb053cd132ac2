package policy_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// mutated has a Pod without a name judged by a policy of JSON patches.
func mutated(t *testing.T, expressions ...string) match.Judgement {
	t.Helper()
	var mutations []admissionregistrationv1.Mutation
	for _, text := range expressions {
		mutations = append(mutations, admissionregistrationv1.Mutation{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: text},
		})
	}
	return mutatedObject(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"a-"}}`, mutations...)
}

func mutatedObject(t *testing.T, object string, mutations ...admissionregistrationv1.Mutation) match.Judgement {
	t.Helper()
	p := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{}
	p.Spec.Mutations = mutations
	request := benchRequest()
	var kind metav1.TypeMeta
	if err := json.Unmarshal([]byte(object), &kind); err != nil {
		t.Fatal(err)
	}
	gvk := kind.GroupVersionKind()
	request.Kind = &admissionv1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}
	request.Name, request.Object = "", &admissionv1.Object{Raw: []byte(object)}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	v, err := policy.NewCompiler().CompileMutating(p).Bind([]*admissionregistrationv1.MutatingAdmissionPolicyBinding{binding}).Judge(
		policy.WithReview(t.Context(), nil), match.NewAttributes(request, match.Unknown{}), nil, nil)
	if (err == nil) != v.GetAllowed() {
		t.Fatal(v, err)
	}
	return v
}

func TestMutationsThatUndoEachOtherAreNoPatch(t *testing.T) {
	v := mutated(t, `[JSONPatch{op: "add", path: "/metadata/labels", value: {"a": "b"}}]`, `[JSONPatch{op: "remove", path: "/metadata/labels"}]`)
	if !v.GetAllowed() || v.GetPatchType() != "" || len(v.GetPatch()) > 0 {
		t.Errorf("patch %q of type %q: %v", v.GetPatch(), v.GetPatchType(), v.GetStatus())
	}
}

func TestARefusalNamesTheObjectAsChanged(t *testing.T) {
	v := mutated(t, `[JSONPatch{op: "add", path: "/metadata/name", value: "changed"}]`, `["no patch"]`)
	const want = "policy 'p' with binding 'b' denied request: must evaluate to list(JSONPatch) but got list(string)"
	if s := v.GetStatus(); s.GetMessage() != want || s.GetDetails().GetName() != "changed" {
		t.Errorf("%q of %q, want %q", s.GetMessage(), s.GetDetails().GetName(), want)
	}
}

func TestAPatchCannotChangeTheKind(t *testing.T) {
	for _, operation := range []string{`op: "replace", path: "/kind", value: "Other"`, `op: "replace", path: "/apiVersion", value: "v2"`} {
		v := mutatedObject(t, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{}}`, admissionregistrationv1.Mutation{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `[JSONPatch{` + operation + `}]`},
		})
		if got := v.GetStatus(); got.GetCode() != 500 || !strings.Contains(got.GetMessage(), "an object of example.com/v1, Kind=Widget cannot become one of ") {
			t.Errorf("%s: %v", operation, got)
		}
	}
}

func TestAnApplyConfigurationNeedsASchema(t *testing.T) {
	v := mutatedObject(t, `{"apiVersion":"example.com/v1","kind":"Unknown","metadata":{}}`, admissionregistrationv1.Mutation{
		PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
		ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: `Object{metadata: Object.metadata{labels: {"c": "d"}}}`},
	})
	if got := v.GetStatus().GetMessage(); !strings.Contains(got, "an ApplyConfiguration needs the schema of Unknown of example.com/v1") {
		t.Errorf("%q", got)
	}
}

// TestAPolicyIsInvokedAgainForTheBindingsOfBefore has a binding that meets the Pod only after another policy has labelled it.
func TestAPolicyIsInvokedAgainForTheBindingsOfBefore(t *testing.T) {
	p := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{}
	p.Spec.ReinvocationPolicy = admissionregistrationv1.IfNeededReinvocationPolicy
	p.Spec.Mutations = []admissionregistrationv1.Mutation{{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch,
		JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: "/metadata/labels/seen", value: "yes"}]`},
	}}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	binding.Spec.MatchResources = &admissionregistrationv1.MatchResources{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "dev"}}}
	bound := policy.NewCompiler().CompileMutating(p).Bind([]*admissionregistrationv1.MutatingAdmissionPolicyBinding{binding})
	ctx := policy.WithReview(t.Context(), nil)
	judge := func(ctx context.Context, labels string) string {
		request := benchRequest()
		request.Object = &admissionv1.Object{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":` + labels + `}}`)}
		v, err := bound.Judge(ctx, match.NewAttributes(request, match.Unknown{}), nil, nil)
		if err != nil || !v.GetAllowed() {
			t.Fatal(v, err)
		}
		return string(v.GetPatch())
	}

	if patch := judge(ctx, "{}"); patch != "" {
		t.Errorf("before the label: %s", patch)
	}
	if patch := judge(policy.Again(ctx), `{"env":"dev"}`); patch != "" {
		t.Errorf("invoked again, though it was not invoked: %s", patch)
	}
	if patch := judge(policy.WithReview(t.Context(), nil), `{"env":"dev"}`); patch == "" {
		t.Error("in a review of its own the policy changes nothing")
	}
}

// TestAPolicyIsInvokedAgainForTheParamsOfBefore has matchConditions choose another param once the Pod has a label.
func TestAPolicyIsInvokedAgainForTheParamsOfBefore(t *testing.T) {
	p := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec.MatchConstraints, p.Spec.ParamKind = &admissionregistrationv1.MatchResources{}, &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	p.Spec.ReinvocationPolicy = admissionregistrationv1.IfNeededReinvocationPolicy
	p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Expression: `params.metadata.name == (has(object.metadata.labels) ? "more" : "limits")`}}
	p.Spec.Mutations = []admissionregistrationv1.Mutation{{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch,
		JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: "/metadata/annotations", value: {"param": params.metadata.name}}]`},
	}}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	binding.Spec.ParamRef = &admissionregistrationv1.ParamRef{Namespace: "dev", Selector: &metav1.LabelSelector{}}
	bound := policy.NewCompiler().CompileMutating(p).Bind([]*admissionregistrationv1.MutatingAdmissionPolicyBinding{binding})
	ctx, request := policy.WithReview(t.Context(), nil), benchRequest()
	for _, round := range []struct {
		ctx            context.Context
		metadata, want string
	}{{ctx, `{}`, `"limits"`}, {policy.Again(ctx), `{"labels":{}}`, ""}, {policy.Again(ctx), `{}`, `"limits"`}} {
		request.Object = &admissionv1.Object{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":` + round.metadata + `}`)}
		v, err := bound.Judge(round.ctx, match.NewAttributes(request, newCluster(t)), nil, nil)
		if patch := string(v.GetPatch()); err != nil || !v.GetAllowed() || (patch == "") != (round.want == "") || !strings.Contains(patch, round.want) {
			t.Errorf("%s: patch %q, want %q: %v %v", round.metadata, patch, round.want, v.GetStatus(), err)
		}
	}
}
