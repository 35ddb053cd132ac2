package dispatcher_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// mutatingPolicy is a policy of one JSON patch.
func mutatingPolicy(name, expression string, failure admissionregistrationv1.FailurePolicyType, changes ...mutatingChange) match.Object {
	p := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec = admissionregistrationv1.MutatingAdmissionPolicySpec{
		FailurePolicy: &failure, ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy, MatchConstraints: testPolicy{}.Constraints(),
		Mutations: []admissionregistrationv1.Mutation{{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: expression},
		}},
	}
	p.Spec.MatchConstraints.NamespaceSelector, p.Spec.MatchConstraints.ObjectSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, change := range changes {
		change(&p.Spec, &binding.Spec)
	}
	return match.Object{Policy: policy.NewCompiler().CompileMutating(p).Bind([]*admissionregistrationv1.MutatingAdmissionPolicyBinding{binding})}
}

// mutatingChange changes a policy and its binding.
type mutatingChange = func(*admissionregistrationv1.MutatingAdmissionPolicySpec, *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec)

// seeing is a backend whose hook allows, and keeps the objects that it saw.
type seeing struct{ objects []string }

func (s *seeing) Start(_ context.Context, b *review.CallSet, done func(int, review.Result)) func(int) {
	for i := range b.Calls {
		s.objects = append(s.objects, string(b.Request.GetObject().GetRaw()))
		done(i, yes())
	}
	return func(int) {}
}

// TestMutatingPoliciesComeBeforeMutatingHooks has two policies that change a Pod, in the order of their names, and a hook
// that sees the result. The policies are judged once more, on their own result.
func TestMutatingPoliciesComeBeforeMutatingHooks(t *testing.T) {
	const seen = `"s" + string(size(object.metadata.labels))`
	for _, test := range []struct {
		name    string
		failure admissionregistrationv1.FailurePolicyType
		broken  string
		object  string
		message string
	}{
		{"both apply", "Fail", `[JSONPatch{op: "test", path: "/kind", value: "Node"}]`, `"labels":{"a":"1","b":"s2"}`, ""},
		{"an ignored failure", "Ignore", `[JSONPatch{op: "remove", path: "/nothing"}]`, `"labels":{"a":"1","b":"s2"}`, ""},
		{
			"a failure", "Fail", `[JSONPatch{op: "remove", path: "/nothing"}]`, "",
			"policy 'c' with binding 'c' denied request: JSON Patch: ",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, backend := input(nil, []hook{{name: "hook.test.dev"}}), &seeing{}
				in.Objects = append(in.Objects,
					mutatingPolicy("b", `[JSONPatch{op: "add", path: "/metadata/labels/b", value: `+seen+`}]`, "Fail"),
					mutatingPolicy("a", `has(object.metadata.labels) ? [] : [JSONPatch{op: "add", path: "/metadata/labels", value: {"a": "1"}}]`, "Fail"),
					mutatingPolicy("c", test.broken, test.failure))
				snapshot, _ := match.Compile(in)
				d, _ := over(t, snapshot, backend)

				a, err := d.Review(t.Context(), podReview(admissionv1.Stage_STAGE_MUTATE, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"}}`))

				if err != nil {
					t.Fatal(err)
				}
				if got := a.Response.GetStatus().GetMessage(); !strings.HasPrefix(got, test.message) || a.Response.GetAllowed() != (test.message == "") {
					t.Errorf("allowed %t with message %q, want %q", a.Response.GetAllowed(), got, test.message)
				}
				if test.object != "" && (len(backend.objects) == 0 || !strings.Contains(string(a.Object), test.object) ||
					!strings.Contains(backend.objects[0], `"b":"s1"`)) {
					t.Errorf("the hook saw %q, and the object is %s, want %s", backend.objects, a.Object, test.object)
				}
			})
		})
	}
}

// TestThePatchOfAPolicyHasABound has each operation of a policy write the whole of a large object.
func TestThePatchOfAPolicyHasABound(t *testing.T) {
	for operations, want := range map[int]string{10: "", 200: "the patch has more than 8388608 bytes"} {
		in := input(nil, nil)
		in.Objects = append(in.Objects, mutatingPolicy("a", fmt.Sprintf(
			`lists.range(%d).map(i, JSONPatch{op: "add", path: "/metadata/a" + string(i), value: object.text})`, operations), "Fail"))
		snapshot, _ := match.Compile(in)
		d, _ := over(t, snapshot, &seeing{})

		a, err := d.Review(t.Context(), podReview(admissionv1.Stage_STAGE_MUTATE,
			`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"},"text":"`+strings.Repeat("x", 100<<10)+`"}`))

		if err != nil {
			t.Fatal(err)
		}
		if got := a.Response.GetStatus().GetMessage(); !strings.HasSuffix(got, want) || a.Response.GetAllowed() != (want == "") {
			t.Errorf("%d operations: allowed %t with message %q", operations, a.Response.GetAllowed(), got)
		}
	}
}

// TestPoliciesAreMatchedAgain has a policy that fails with the object as a later policy leaves it, where it would change nothing: it is never
// reinvoked, or has not been invoked before.
func TestPoliciesAreMatchedAgain(t *testing.T) {
	labelled := &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	for _, test := range []struct {
		change  mutatingChange
		message string
	}{
		{func(p *admissionregistrationv1.MutatingAdmissionPolicySpec, _ *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec) {
			p.ReinvocationPolicy = admissionregistrationv1.NeverReinvocationPolicy
			p.MatchConditions = []admissionregistrationv1.MatchCondition{{Expression: `!has(object.metadata.labels) || object.metadata.labels.none == ""`}}
		}, "no such key: none"},
		{func(p *admissionregistrationv1.MutatingAdmissionPolicySpec, b *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec) {
			p.MatchConstraints.ObjectSelector = labelled
			b.MatchResources = &admissionregistrationv1.MatchResources{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"no key": ""}}}
		}, "failed to configure binding: "},
		{func(p *admissionregistrationv1.MutatingAdmissionPolicySpec, _ *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec) {
			p.MatchConstraints.ObjectSelector = labelled
		}, ""},
	} {
		in := input(nil, nil)
		in.Objects = append(in.Objects,
			mutatingPolicy("a", `[JSONPatch{op: "add", path: "/metadata/name", value: object.metadata.name + "a"}]`, "Fail", test.change),
			mutatingPolicy("b", `[JSONPatch{op: "add", path: "/metadata/labels", value: {"env": "prod"}}]`, "Fail"))
		snapshot, _ := match.Compile(in)
		d, _ := over(t, snapshot, &seeing{})

		a, err := d.Review(t.Context(), podReview(admissionv1.Stage_STAGE_MUTATE, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"}}`))

		if err != nil {
			t.Fatal(err)
		}
		if got := a.Response.GetStatus().GetMessage(); !strings.Contains(got, test.message) || a.Response.GetAllowed() != (test.message == "") {
			t.Errorf("allowed %t with message %q, want %q", a.Response.GetAllowed(), got, test.message)
		}
		if test.message == "" && !strings.Contains(string(a.Object), `"name":"x"`) {
			t.Errorf("the policy was invoked: %s", a.Object)
		}
	}
}

// TestAFailedConversionIsAFailureOfThePolicy has policies on another version of Pods, and a cluster that cannot convert Pods to it.
func TestAFailedConversionIsAFailureOfThePolicy(t *testing.T) {
	elsewhere := func(m *admissionregistrationv1.MatchResources) {
		m.ResourceRules[0].APIGroups, m.MatchPolicy = []string{"other.dev"}, ptr.To(admissionregistrationv1.Equivalent)
	}
	for failure, want := range map[admissionregistrationv1.FailurePolicyType]string{
		admissionregistrationv1.Fail: "failed to convert object version: ", admissionregistrationv1.Ignore: "",
	} {
		validating := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		validating.Spec = admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &failure, MatchConstraints: testPolicy{}.Constraints(), Validations: []admissionregistrationv1.Validation{{Expression: "true"}},
		}
		validating.Spec.MatchConstraints.NamespaceSelector, validating.Spec.MatchConstraints.ObjectSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{}
		elsewhere(validating.Spec.MatchConstraints)
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
		snapshot, _ := match.Compile(match.Input{Revision: "r1", Objects: []match.Object{
			mutatingPolicy("a", "[]", failure, func(p *admissionregistrationv1.MutatingAdmissionPolicySpec, _ *admissionregistrationv1.MutatingAdmissionPolicyBindingSpec) {
				elsewhere(p.MatchConstraints)
			}),
			{Policy: policy.NewCompiler().Compile(validating).Bind([]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{binding})},
		}})
		k := twofold{static: static{snapshot: snapshot}}
		d, err := dispatcher.New(dispatcher.Options{Snapshots: k, Clusters: k, Streams: &seeing{}})
		if err != nil {
			t.Fatal(err)
		}
		for stage, code := range map[admissionv1.Stage]int32{mutate: http.StatusForbidden, validate: http.StatusUnprocessableEntity} {
			a, err := d.Review(t.Context(), podReview(stage, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"}}`))
			if err != nil {
				t.Fatal(err)
			}
			s := a.Response.GetStatus()
			if a.Response.GetAllowed() != (want == "") || !strings.Contains(s.GetMessage(), want) || want != "" && s.GetCode() != code {
				t.Errorf("%s with failurePolicy %s: allowed %t, %v", stage, failure, a.Response.GetAllowed(), s)
			}
		}
	}
}
