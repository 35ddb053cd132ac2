package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// bind is a policy for everything, with a binding for each set of actions.
func bind(spec admissionregistrationv1.ValidatingAdmissionPolicySpec, actions ...[]admissionregistrationv1.ValidationAction) bound {
	p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: spec}
	if p.Spec.MatchConstraints == nil {
		p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule([]string{"*"}, []string{"*"}, []string{"*/*"}, "*")},
		}
	}
	b := bound{ValidatingAdmissionPolicy: p}
	for i, set := range actions {
		one := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("b%d", i)}}
		one.Spec.PolicyName, one.Spec.ValidationActions = "p", set
		b.bindings = append(b.bindings, one)
	}
	return b
}

// check is a validation that is an expression, with a messageExpression.
func check(expression, message string) admissionregistrationv1.Validation {
	return admissionregistrationv1.Validation{Expression: expression, MessageExpression: message}
}

func createWidget(metadata map[string]any) *admissionv1.AdmissionRequest {
	e := endpoint{"example.com", "v1", "Widget", "widgets", "", false, ""}
	return &admissionv1.AdmissionRequest{
		Kind:      &admissionv1.GroupVersionKind{Group: e.group, Version: e.version, Kind: e.kind},
		Resource:  &admissionv1.GroupVersionResource{Group: e.group, Version: e.version, Resource: e.resource},
		Namespace: "dev", Operation: "CREATE", UserInfo: &admissionv1.UserInfo{Username: "jane"}, Object: written(map[string]any{"metadata": metadata}, e),
	}
}

// TestPoliciesJudgeAsKubernetesDoes has the cases that differed once.
func TestPoliciesJudgeAsKubernetesDoes(t *testing.T) {
	const deny, warn, audit = admissionregistrationv1.Deny, admissionregistrationv1.Warn, admissionregistrationv1.Audit
	ignore := admissionregistrationv1.Ignore
	named := map[string]any{"name": "x"}
	execute := createWidget(nil)
	execute.Operation, execute.SubResource = "CONNECT", "exec"
	execute.Kind, execute.Resource = &admissionv1.GroupVersionKind{Version: "v1", Kind: "PodExecOptions"}, &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}
	execute.Object = written(map[string]any{"stdin": true}, endpoint{"", "v1", "PodExecOptions", "pods", "exec", false, ""})
	elsewhere := createWidget(named)
	elsewhere.Namespace = "missing"
	spends := admissionregistrationv1.ValidatingAdmissionPolicySpec{Variables: expressions{random: newRandom(1), variables: true}.declarations()}
	for range 13 {
		spends.Validations = append(spends.Validations, check(threeQuarters, ""))
	}
	spends.Validations = append(spends.Validations, check("false", ""), check("false", "string("+threeQuarters+")"))
	frugal := *spends.DeepCopy()
	frugal.Validations[0].MessageExpression, frugal.Validations[14].MessageExpression = frugal.Validations[14].MessageExpression, ""
	failing := *spends.DeepCopy()
	failing.Validations[13] = check("object.missing == 1", failing.Validations[14].MessageExpression)
	failing.Validations[14].MessageExpression = ""
	annotated := func(n int) (spec admissionregistrationv1.ValidatingAdmissionPolicySpec) {
		spec.Variables = spends.Variables
		for i := range n {
			spec.AuditAnnotations = append(spec.AuditAnnotations, admissionregistrationv1.AuditAnnotation{
				Key: fmt.Sprintf("k%d", i), ValueExpression: "string(" + threeQuarters + ")",
			})
		}
		return spec
	}
	read := admissionregistrationv1.ValidatingAdmissionPolicySpec{Variables: spends.Variables[:1:1], Validations: []admissionregistrationv1.Validation{check("true", "")}}
	for i := range 14 {
		name := fmt.Sprintf("v%d", i)
		read.Variables = append(read.Variables, admissionregistrationv1.Variable{Name: name, Expression: threeQuarters})
		read.Validations[0].Expression += " && variables." + name
	}
	older := createWidget(named)
	older.Kind.Version, older.Resource.Version = "v1beta1", "v1beta1"
	older.Object = written(map[string]any{"metadata": named}, endpoint{"example.com", "v1beta1", "Widget", "widgets", "", false, ""})
	for name, c := range map[string]struct {
		spec    admissionregistrationv1.ValidatingAdmissionPolicySpec
		actions [][]admissionregistrationv1.ValidationAction
		request *admissionv1.AdmissionRequest
		want    string // a part of the answer
		events  string // deviations
	}{
		"an ignored failure leaves the warnings of the others": {
			spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				FailurePolicy: &ignore, Validations: []admissionregistrationv1.Validation{check("object.missing.missing == 1", ""), check("false", `"no"`)},
				AuditAnnotations: []admissionregistrationv1.AuditAnnotation{{Key: "k", ValueExpression: `"kept"`}},
			},
			actions: [][]admissionregistrationv1.ValidationAction{{warn, audit}}, want: `with binding 'b0': no] map[p.k:kept] [{no p b0 1 [Warn Audit]}]`,
			events: "P3: failed open",
		},
		"a policy that cannot be matched names the object": {
			spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "dev"}},
				ResourceRules:     []admissionregistrationv1.NamedRuleWithOperations{rule([]string{"*"}, []string{"*"}, []string{"*/*"}, "*")},
			}},
			actions: [][]admissionregistrationv1.ValidationAction{{warn}}, request: elsewhere,
			want: `422 Invalid example.com widgets x ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: namespaces "missing" not found`,
		},
		"a name that is yet to be generated": {
			spec:    admissionregistrationv1.ValidatingAdmissionPolicySpec{Validations: []admissionregistrationv1.Validation{check("false", "")}},
			actions: [][]admissionregistrationv1.ValidationAction{{deny}}, request: createWidget(map[string]any{"generateName": "x-"}),
			want: `widgets x- ValidatingAdmissionPolicy`,
		},
		"options of a CONNECT have no name": {
			spec:    admissionregistrationv1.ValidatingAdmissionPolicySpec{Validations: []admissionregistrationv1.Validation{check("false", "")}},
			actions: [][]admissionregistrationv1.ValidationAction{{deny}}, request: execute, want: `pods Unknown/errorGettingName ValidatingAdmissionPolicy`,
		},
		"messages have no authorizer": {
			spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				Variables:   []admissionregistrationv1.Variable{{Name: "may", Expression: `authorizer.path("/open").check("get").allowed()`}},
				Validations: []admissionregistrationv1.Validation{check("!variables.may", "string(variables.may)")},
			},
			actions: [][]admissionregistrationv1.ValidationAction{{deny}}, want: "failed expression: !variables.may",
		},
		"audit annotations have no authorizer": {
			spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				AuditAnnotations: []admissionregistrationv1.AuditAnnotation{{Key: "k", ValueExpression: `string(authorizer.requestResource.check("get").allowed())`}},
			},
			actions: [][]admissionregistrationv1.ValidationAction{{audit}}, want: "no such attribute(s): authorizer.requestResource",
		},
		"messages that spend the budget fail all validations": {
			spec: spends, actions: [][]admissionregistrationv1.ValidationAction{{audit}}, want: "{failed messageExpression: validation failed due to running out of cost budget, " +
				"no further validation rules will be run p b0 0 [Audit]}",
		},
		"messages of validations that hold are free": {
			spec: frugal, actions: [][]admissionregistrationv1.ValidationAction{{audit}}, want: "[{failed expression: false p b0 13 [Audit]} {failed expression: false p b0 14 [Audit]}]",
			events: "P2: a message that is not needed",
		},
		"messages of validations that fail are free": {
			spec: failing, actions: [][]admissionregistrationv1.ValidationAction{{audit}}, want: "no such key: missing p b0 13 [Audit]} {failed expression: false p b0 14 [Audit]}]",
			events: "P2: a message that is not needed",
		},
		"audit annotations have the budget of validations": {
			spec: annotated(13), actions: [][]admissionregistrationv1.ValidationAction{{audit}}, want: "p.k12:true",
		},
		"audit annotations that spend their budget": {
			spec: annotated(14), actions: [][]admissionregistrationv1.ValidationAction{{deny}}, want: "denied request: validation failed due to running out of cost budget",
		},
		"variables cost": {
			spec: read, actions: [][]admissionregistrationv1.ValidationAction{{deny}}, want: "denied request: validation failed due to running out of cost budget",
		},
		"conditions see the version of the request, validations the version of the rules": {
			spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule([]string{"example.com"}, []string{"v1"}, []string{"widgets"}, "*")},
				},
				MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "c", Expression: `request.resource.version == "v1beta1"`}},
				Validations:     []admissionregistrationv1.Validation{check(`request.resource.version == "v1beta1"`, `request.resource.version`)},
			},
			actions: [][]admissionregistrationv1.ValidationAction{{deny}}, request: older, want: "denied request: v1",
		},
		"bindings that lead to the same": {
			spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				Validations: []admissionregistrationv1.Validation{check("false", `"no"`), check("false", `"never"`)},
			},
			actions: [][]admissionregistrationv1.ValidationAction{{deny}, {deny}, {warn}}, want: "with binding 'b0' denied request: no ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLaboratory(t)
			w := l.world([]bound{bind(c.spec, c.actions...)})
			if c.request == nil {
				c.request = createWidget(named)
			}

			j := l.judge(experiment{w, c.request})

			if j.difference != "" {
				t.Errorf("(-kube-apiserver +portcullis):\n%s", j.difference)
			}
			g := j.got
			if got := fmt.Sprint(g.Allowed, g.Code, " ", g.Reason, " ", g.Group, " ", g.Kind, " ", g.Name, " ", g.First, " ", g.Warnings, g.Audit, g.Failures); !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %q in it", got, c.want)
			}
			if got := strings.Join(j.events, ", "); got != c.events {
				t.Errorf("deviations %q, want %q", got, c.events)
			}
		})
	}
}

// TestManyBindingsCostOneEvaluation has a policy with 1,024 bindings, which spends a tenth of the budget once.
func TestManyBindingsCostOneEvaluation(t *testing.T) {
	const bindings = 1024
	actions := make([][]admissionregistrationv1.ValidationAction, bindings)
	for i := range actions {
		actions[i] = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	}
	spec := admissionregistrationv1.ValidatingAdmissionPolicySpec{
		Variables:   expressions{random: newRandom(1), variables: true}.declarations(),
		Validations: []admissionregistrationv1.Validation{check(threeQuarters, ""), check("false", `"no"`)},
	}
	l := newLaboratory(t)
	w := l.world([]bound{bind(spec, actions...)})
	w.hooks[0].Bindings = w.hooks[0].Bindings[:1] // kube-apiserver evaluates the policy for each

	j := l.judge(experiment{w, createWidget(map[string]any{"name": "x"})})

	if diff := cmp.Diff([]string{"ValidatingAdmissionPolicy 'p' with binding 'b0' denied request: no"}, j.denials); diff != "" || j.difference != "" || j.costly {
		t.Errorf("%s%s, costly %t", diff, j.difference, j.costly)
	}
}

// TestAnAuditValueIsCutBetweenCharacters: kube-apiserver cuts bytes, which cannot be sent as a text.
func TestAnAuditValueIsCutBetweenCharacters(t *testing.T) {
	p := bind(admissionregistrationv1.ValidatingAdmissionPolicySpec{
		AuditAnnotations: []admissionregistrationv1.AuditAnnotation{{Key: "k", ValueExpression: `"` + strings.Repeat("€", 4000) + `"`}},
	}, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny})
	judged := policy.NewCompiler().Compile(p.ValidatingAdmissionPolicy).Bind(p.bindings)

	a, err := judged.Judge(t.Context(), match.NewAttributes(createWidget(map[string]any{"name": "x"}), match.Unknown{}), nil, nil)

	if err != nil {
		t.Fatal(err)
	}
	if value := a.GetAuditAnnotations()["k"]; !utf8.ValidString(value) || len(value) != 10<<10-1 {
		t.Errorf("%d bytes, valid UTF-8: %t", len(value), utf8.ValidString(value))
	}
}
