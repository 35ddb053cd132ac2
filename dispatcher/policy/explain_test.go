package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// explaining is an observer that explains each validation.
type explaining struct {
	explainer *policy.Explainer
	lines     []string
}

func (e *explaining) Observe(o policy.Observation) {
	if strings.HasPrefix(o.Field, ".validations") {
		for _, p := range e.explainer.Explain(o) {
			e.lines = append(e.lines, p.String())
		}
	}
}

func TestAnExplanationHasTheValuesOfTheParts(t *testing.T) {
	l := newLaboratory(t)
	explainer, err := policy.NewExplainer()
	if err != nil {
		t.Fatal(err)
	}
	images := []any{map[string]any{"image": "a:1"}, map[string]any{"image": "b:latest"}, map[string]any{"image": "c:3"}}
	object := map[string]any{
		"metadata": map[string]any{"name": "x", "labels": map[string]any{"team": "web"}},
		"spec":     map[string]any{"replicas": 3, "containers": images, "note": strings.Repeat("long ", 100)},
	}
	for expression, want := range map[string][]string{
		"object.spec.replicas < 3":           {"object.spec.replicas < 3 = false", "  object.spec.replicas = 3"},
		"true || object.spec.replicas < 3":   {"true || object.spec.replicas < 3 = true"},
		"object.spec.nothing == 3":           {"object.spec.nothing == 3 = error: no such key: nothing", "  object.spec.nothing = error: no such key: nothing"},
		"has(object.spec.paused)":            {"has(object.spec.paused) = false"},
		"object.?spec.?paused.orValue(true)": {"object.?spec.?paused.orValue(true) = true", "  object.?spec.?paused = none"},
		"variables.names.all(n, n != 'b:latest')": {
			"variables.names.all(n, n != 'b:latest') = false", `  variables.names = ["a:1","b:latest","c:3"]`, `  n != 'b:latest' = false`, `    n = "b:latest"`,
		},
		"object.metadata.labels.team in ['db', 'ops'] || object.spec.containers.exists(c, c.image.startsWith('z'))": {
			"object.metadata.labels.team in ['db', 'ops'] || object.spec.containers.exists(c, c.image.startsWith('z')) = false",
			"  object.metadata.labels.team in ['db', 'ops'] = false", `    object.metadata.labels.team = "web"`,
			"  object.spec.containers.exists(c, c.image.startsWith('z')) = false",
			`    object.spec.containers = [{"image":"a:1"},{"image":"b:latest"},{"image":"c:3"}]`,
			"    c.image.startsWith('z') = false", `      c.image = "c:3"`,
		},
		"quantity('1Gi').isGreaterThan(quantity('2Gi'))": {
			"quantity('1Gi').isGreaterThan(quantity('2Gi')) = false", "  quantity('1Gi') = 1Gi", "  quantity('2Gi') = 2Gi",
		},
		"object.spec.note == ''": {"object.spec.note == '' = false", `  object.spec.note = "` + strings.Repeat("long ", 100)[:policy.MaxPartBytes-4] + "..."},
	} {
		t.Run(expression, func(t *testing.T) {
			p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule([]string{"*"}, []string{"*"}, []string{"*/*"}, "*")},
			}
			p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "names", Expression: "object.spec.containers.map(c, c.image)"}}
			p.Spec.Validations = []admissionregistrationv1.Validation{{Expression: expression}}
			request := &admissionv1.AdmissionRequest{
				Operation: "CREATE", Kind: &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
				Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}, Name: "x", Namespace: "dev",
				Object: written(object, endpoints()[0]),
			}
			e := &explaining{explainer: explainer}
			ctx := policy.WithReview(policy.WithObserver(t.Context(), e), nil)
			bound := l.compile.Compile(p).Bind([]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{{}})
			if _, err := bound.Judge(ctx, match.NewAttributes(request, l.known), nil, nil); err != nil {
				t.Fatal(err)
			}
			for i := range want { // the unparser has quotes of its own
				text, value, _ := strings.Cut(want[i], " = ")
				want[i] = strings.ReplaceAll(text, "'", `"`) + " = " + value
			}
			if diff := cmp.Diff(want, e.lines); diff != "" {
				t.Error(diff)
			}
		})
	}
}
