package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// decodedPolicy is a policy with an expression.
func decodedPolicy(name, spec string) string {
	return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: " + name + "}\nspec:\n" +
		"  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}\n" + spec + "\n---\n"
}

func decodedBinding(name, policy string) string {
	return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: " + name + "}\n" +
		"spec: {policyName: " + policy + ", validationActions: [Deny]}\n---\n"
}

// TestPoliciesComeIntoForceWithTheirBindings has policies and bindings that stand alone.
func TestPoliciesComeIntoForceWithTheirBindings(t *testing.T) {
	const validations = "  validations: [{expression: 'true'}]"
	objects, problems := decode("p.yaml", []byte(decodedPolicy("b", validations)+decodedBinding("one", "b")+decodedBinding("two", "b")+
		decodedPolicy("a", validations)+decodedBinding("three", "c")))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}

	snapshot, findings := Compile("r", objects)

	var hooks []string
	for _, h := range snapshot.Hooks() {
		hooks = append(hooks, h.ID.Configuration+" "+KeyOf(h).Name+" "+string(h.FailurePolicy))
	}
	if diff := cmp.Diff([]string{"ValidatingAdmissionPolicy/b b Fail"}, hooks); diff != "" {
		t.Error(diff)
	}
	want := []string{
		`p.yaml:18: ValidatingAdmissionPolicy "a": no ValidatingAdmissionPolicyBinding puts the policy into force: write one with spec.policyName: a`,
		`p.yaml:28: ValidatingAdmissionPolicyBinding "three": spec.policyName: there is no ValidatingAdmissionPolicy c`,
	}
	if diff := cmp.Diff(want, lines(findings)); diff != "" {
		t.Error(diff)
	}
}

// TestPoliciesSayForWhatTheyAskTheCluster has a finding for each thing that not every cluster can be asked for.
func TestPoliciesSayForWhatTheyAskTheCluster(t *testing.T) {
	spec := "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  matchConditions: [{name: a, expression: 'namespaceObject == null'}]\n" +
		"  variables: [{name: b, expression: 'namespaceObject.metadata.labels'}]\n  validations: [{expression: 'true', messageExpression: 'string(params.data.a)'}]\n" +
		"  auditAnnotations: [{key: c, valueExpression: \"string(authorizer.path('/x').check('get').allowed())\"}]"
	objects, problems := decode("p.yaml", []byte(decodedPolicy("a", spec)+strings.Replace(decodedBinding("one", "a"),
		"policyName: a", "policyName: a, paramRef: {name: limits, parameterNotFoundAction: Deny}", 1)))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}

	_, findings := Compile("r", objects)

	const fails = ": where it cannot, the policy fails, and its failurePolicy decides"
	want := []string{
		`p.yaml:6: ValidatingAdmissionPolicy "a": spec.paramKind: for the params, of kind ConfigMap of v1, the mesh lists the objects in the cluster, ` +
			`for which the identity of the mesh there needs the permission, unless PolicyParams have some for it` + fails,
		`p.yaml:8: ValidatingAdmissionPolicy "a": spec.variables[0].expression: for the namespaceObject the mesh asks the API server of the cluster` + fails,
		`p.yaml:10: ValidatingAdmissionPolicy "a": spec.auditAnnotations[0].valueExpression: for the authorizer the mesh asks the API server of the cluster` + fails,
	}
	if diff := cmp.Diff(want, lines(findings)); diff != "" {
		t.Error(diff)
	}
}

// TestPoliciesAreRefusedWithTheFieldAtFault has a policy for each rule that is not kube-apiserver's.
func TestPoliciesAreRefusedWithTheFieldAtFault(t *testing.T) {
	for _, test := range []struct{ name, spec, want string }{
		{
			"a long expression", "  validations: [{expression: '" + strings.Repeat(" ", MaxExpressionBytes) + "true'}]",
			"spec.validations[0].expression: the expression has 16,388 bytes, and at most 16,384 are compiled",
		},
		{
			"a regular expression", `  auditAnnotations: [{key: a, valueExpression: "'a'.find('a{999}b{999}')"}]`,
			"spec.auditAnnotations[0].valueExpression: its regular expressions get ",
		},
		{"an operator of other languages", `  validations: [{expression: "object.kind = 'Pod'"}]`, ": CEL has == for equality"},
		{"an unknown field", "  validation: []", `spec.validation: unknown field; did you mean "validations"?`},
	} {
		t.Run(test.name, func(t *testing.T) {
			objects, problems := decode("p.yaml", []byte(decodedPolicy("a", test.spec)))

			if err := problems.Err(); len(objects) != 0 || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%d objects, error %v, want %q", len(objects), err, test.want)
			}
		})
	}
}

// TestMutatingPoliciesComeIntoForceWithTheirBindings has a policy of each version, and documents of the other kind that have the same names.
func TestMutatingPoliciesComeIntoForceWithTheirBindings(t *testing.T) {
	document := func(version, name, expression string) string {
		return "apiVersion: admissionregistration.k8s.io/" + version + "\nkind: MutatingAdmissionPolicy\nmetadata: {name: " + name + "}\nspec:\n" +
			"  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: ['*']}]}\n" +
			"  reinvocationPolicy: IfNeeded\n  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '" + expression + "'}}]\n---\n"
	}
	const patch = `[JSONPatch{op: "remove", path: "/metadata/labels"}]`
	binding := func(name string) string {
		return strings.Replace(strings.Replace(decodedBinding(name, name), "Validating", "Mutating", 1), ", validationActions: [Deny]", "", 1)
	}
	objects, problems := decode("p.yaml", []byte(document("v1", "a", patch)+binding("a")+document("v1beta1", "b", patch)+binding("b")+
		document("v1alpha1", "c", patch)+binding("c")+document("v1", "d", patch)+decodedBinding("d", "d")))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}

	snapshot, findings := Compile("r", objects)

	var hooks []string
	for _, h := range snapshot.Hooks() {
		hooks = append(hooks, h.ID.Configuration+" "+string(h.Reinvocation)+" "+fmt.Sprint(h.Rules()[0].Operations))
	}
	const operations = " IfNeeded [CREATE UPDATE CONNECT]"
	want := []string{"MutatingAdmissionPolicy/a" + operations, "MutatingAdmissionPolicy/b" + operations, "MutatingAdmissionPolicy/c" + operations}
	if diff := cmp.Diff(want, hooks); diff != "" {
		t.Error(diff)
	}
	if len(findings) != 2 {
		t.Errorf("problems %v, want a policy and a binding that stand alone", lines(findings))
	}
	_, problems = decode("p.yaml", []byte(document("v1", "a", "Object{}")))
	if err := problems.Err(); err == nil || !strings.Contains(err.Error(), "spec.mutations[0].jsonPatch.expression: ") {
		t.Errorf("error %v", err)
	}
}

// countingValidator counts the documents that it is asked about.
type countingValidator struct{ asked int }

func (v *countingValidator) Validate(runtime.Object) field.ErrorList {
	v.asked++
	return nil
}

func (v *countingValidator) ValidateOlder(runtime.Object, []string) field.ErrorList { return nil }

// TestTheExpressionsOfAPolicyAreCountedBeforeTheyAreCompiled has the last policy that Kubernetes' validation, which compiles its expressions, is asked
// about, and the first that it is not.
func TestTheExpressionsOfAPolicyAreCountedBeforeTheyAreCompiled(t *testing.T) {
	for validations, want := range map[int]int{MaxConditions: 1, MaxConditions + 1: 0} {
		v := &countingValidator{}
		document := decodedPolicy("a", "  validations:"+strings.Repeat("\n  - {expression: 'true'}", validations))

		objects, problems := NewDecoder(v).Decode("p.yaml", []byte(document))

		if v.asked != want || len(objects) != want || (problems.Err() == nil) != (want == 1) {
			t.Errorf("%d validations: asked %d times, %d objects, %v", validations, v.asked, len(objects), problems.Err())
		}
	}
	if objects, problems := decode("p.yaml", []byte(decodedPolicy("a", "  validations: []"))); len(objects) != 0 || problems.Err() == nil {
		t.Errorf("a policy without expressions is taken: %v", problems)
	}
}

// TestAPolicyIsCompiledOnce as long as an object of the same content is in use.
func TestAPolicyIsCompiledOnce(t *testing.T) {
	v := &countingValidator{}
	d := NewDecoder(v)
	document := decodedPolicy("a", "  validations: [{expression: 'true'}]")
	first, problems := d.Decode("p.yaml", []byte(document))
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	again, _ := d.Decode("other.yaml", []byte("# the same\n"+document))
	if v.asked != 1 || again[0].Definition != first[0].Definition || again[0].Definition == nil {
		t.Errorf("the same policy: asked %d times, and compiled anew: %t", v.asked, again[0].Definition != first[0].Definition)
	}
	other, _ := d.Decode("p.yaml", []byte(strings.Replace(document, "'true'", "'false'", 1)))
	if v.asked != 2 || other[0].Definition == first[0].Definition {
		t.Errorf("another policy: asked %d times", v.asked)
	}
}
