package policies_test

import (
	"fmt"
	"testing"

	celgo "github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// TestExpressionsHaveTheValuesAndCostsOfKubernetes evaluates the expressions of each policy on the objects of all cases: by a program of the mesh, and by
// a program of kube-apiserver's compiler.
func TestExpressionsHaveTheValuesAndCostsOfKubernetes(t *testing.T) {
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	set, err := base.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0), ProgramOptions: match.BoundCalls(base.StoredExpressionsEnv()),
		EnvOptions: []celgo.EnvOption{celgo.Variable(cel.VariableVarName, celgo.MapType(celgo.StringType, celgo.DynType))},
	})
	if err != nil {
		t.Fatal(err)
	}
	ours, err := match.NewCompiler(set)
	if err != nil {
		t.Fatal(err)
	}
	kubernetes, objects, evaluated := cel.NewCompiler(set), caseObjects(t), 0
	for _, name := range folders(t) {
		e := read(t, name).Expandable.Expand("")
		var all []programs
		for _, v := range e.Policy.Spec.Variables {
			all = append(all, compileBoth(t, ours, kubernetes, v.Name, v.Expression))
		}
		for _, c := range e.Policy.Spec.MatchConditions {
			all = append(all, compileBoth(t, ours, kubernetes, "", c.Expression))
		}
		for _, v := range e.Policy.Spec.Validations {
			all = append(all, compileBoth(t, ours, kubernetes, "", v.Expression))
			if v.MessageExpression != "" {
				all = append(all, compileBoth(t, ours, kubernetes, "", v.MessageExpression))
			}
		}
		for _, object := range objects {
			variables := map[string]any{}
			for _, p := range all {
				value := p.compare(t, map[string]any{
					"object": object, "oldObject": nil, "namespaceObject": nil, "variables": variables,
					"request": map[string]any{"name": "a", "namespace": "shop", "operation": "CREATE", "subResource": "", "userInfo": map[string]any{"username": "jane"}},
				})
				if evaluated++; p.variable != "" && value != nil {
					variables[p.variable] = value
				}
			}
		}
	}
	if evaluated < 1000 {
		t.Errorf("%d expressions were evaluated", evaluated)
	}
}

// caseObjects are the objects that the cases of all policies begin with.
func caseObjects(t *testing.T) (all []any) {
	t.Helper()
	for _, name := range folders(t) {
		raw, err := yaml.YAMLToJSON([]byte(text(t, name, "cases.yaml")))
		if err != nil {
			t.Fatal(err)
		}
		var cases struct {
			Defaults struct {
				Object map[string]any `json:"object"`
			} `json:"defaults"`
		}
		if err := utiljson.Unmarshal(raw, &cases); err != nil {
			t.Fatal(err)
		}
		if cases.Defaults.Object != nil {
			all = append(all, cases.Defaults.Object)
		}
	}
	return all
}

// programs are both programs of an expression, which may be the value of a variable.
type programs struct {
	variable, text   string
	ours, kubernetes celgo.Program
}

func compileBoth(t *testing.T, ours, kubernetes cel.Compiler, variable, text string) programs {
	t.Helper()
	compile := func(c cel.Compiler) celgo.Program {
		result := c.CompileCELExpression(untyped(text), cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
		if result.Error != nil {
			t.Fatalf("%s: %v", text, result.Error)
		}
		return result.Program
	}
	return programs{variable, text, compile(ours), compile(kubernetes)}
}

// compare evaluates both programs, and returns the value; nil if they fail.
func (p programs) compare(t *testing.T, input map[string]any) any {
	t.Helper()
	want, wantDetails, wantErr := p.kubernetes.ContextEval(t.Context(), input)
	got, gotDetails, gotErr := p.ours.ContextEval(t.Context(), input)
	if w, g := *wantDetails.ActualCost(), *gotDetails.ActualCost(); w != g || fmt.Sprint(wantErr) != fmt.Sprint(gotErr) {
		t.Errorf("%s: it costs %d with error %v, and by kube-apiserver %d with %v", p.text, g, gotErr, w, wantErr)
	}
	if wantErr != nil || gotErr != nil {
		return nil
	}
	if want.Type() != got.Type() || want.Equal(got) != celtypes.True {
		t.Errorf("%s: %v, and %v by kube-apiserver", p.text, got, want)
	}
	return want
}

// untyped is an expression of any type.
type untyped string

func (u untyped) GetExpression() string      { return string(u) }
func (u untyped) ReturnTypes() []*celgo.Type { return []*celgo.Type{celgo.AnyType} }
