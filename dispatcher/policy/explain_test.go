package policy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
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
		keys := int64(policy.MaxExplainedCost)
		for _, p := range e.explainer.Explain(o, &keys) {
			e.lines = append(e.lines, strings.Repeat("  ", int(p.GetDepth()))+p.GetText()+" = "+p.GetValue())
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
			e := &explaining{explainer: explainer}
			l.observe(e, object, expression)
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

// observe judges an object by validations, with an observer.
func (l *laboratory) observe(o policy.Observer, object map[string]any, expressions ...string) {
	l.Helper()
	l.observeWith(policy.WithReview(l.Context(), nil), o, object, expressions...)
}

// observeWith is observe in the context of a review.
func (l *laboratory) observeWith(ctx context.Context, o policy.Observer, object map[string]any, expressions ...string) {
	l.Helper()
	p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule([]string{"*"}, []string{"*"}, []string{"*/*"}, "*")},
	}
	p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "names", Expression: "object.spec.containers.map(c, c.image)"}}
	for _, x := range expressions {
		p.Spec.Validations = append(p.Spec.Validations, admissionregistrationv1.Validation{Expression: x})
	}
	request := &admissionv1.AdmissionRequest{
		Operation: "CREATE", Kind: &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}, Name: "x", Namespace: "dev",
		Object: written(object, endpoints()[0]),
	}
	ctx = policy.WithObserver(ctx, o)
	bound := l.compile.Compile(p).Bind([]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{{}})
	if judged, err := bound.Judge(ctx, match.NewAttributes(request, l.known), nil, nil); !judged.GetAllowed() {
		l.Fatal(judged, err) // an expression that fails is an error beside an answer
	}
}

// TestAValueIsTheBeginningOfItsJSON also of a value that is larger than a part shows.
func TestAValueIsTheBeginningOfItsJSON(t *testing.T) {
	l := newLaboratory(t)
	explainer, err := policy.NewExplainer()
	if err != nil {
		t.Fatal(err)
	}
	many, list := map[string]any{}, []any{}
	for i := range 20_000 {
		many[strconv.Itoa(i)] = i % 7
		list = append(list, map[string]any{"i": i})
	}
	deep := any("end")
	for range 300 {
		deep = []any{deep}
	}
	for name, value := range map[string]any{
		"scalars": []any{1, 1.5, true, nil, "a <b> & \"c\" \n é", "", -3},
		"empty":   map[string]any{"a": []any{}, "b": map[string]any{}},
		"sorted":  map[string]any{"b": 1, "a": map[string]any{"z": 1, "y": []any{2}}, "": 0},
		"many":    many, "list": list, "deep": deep, "text": strings.Repeat("é", 1<<20), "short keys": map[string]any{"": 0, "a": 1},
	} {
		t.Run(name, func(t *testing.T) {
			raw := &bytes.Buffer{}
			encoder := json.NewEncoder(raw)
			encoder.SetEscapeHTML(false)
			if err := encoder.Encode(value); err != nil {
				t.Fatal(err)
			}
			want := strings.TrimSpace(raw.String())
			if len(want) > policy.MaxPartBytes {
				want = strings.ToValidUTF8(want[:policy.MaxPartBytes-len("...")], "") + "..."
			}
			e := explainer.Explanations()
			l.observe(e, map[string]any{"metadata": map[string]any{"name": "x"}, "value": value, "spec": map[string]any{}}, "dyn(object.value) == 'no'")
			if got := e.Take()[0].GetParts()[2].GetValue(); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// TestAnExplanationIsBounded in expressions, in bytes and in units of CEL, for all policies of a review.
func TestAnExplanationIsBounded(t *testing.T) {
	l := newLaboratory(t)
	explainer, err := policy.NewExplainer()
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]any{}
	for i := range 60 {
		texts[fmt.Sprint("f", i)] = strings.Repeat("x", 300)
	}
	many := map[string]any{}
	for i := range 20_000 {
		many[strconv.Itoa(i)] = i
	}
	object := map[string]any{"metadata": map[string]any{"name": "x"}, "spec": texts, "list": make([]any, 400), "many": many}
	var terms []string
	for i := range 60 {
		terms = append(terms, fmt.Sprintf("object.spec.f%d == 'a'", i))
	}
	long := strings.Join(terms, " || ")
	const costly = "object.list.exists(a, object.list.exists(b, b == 1)) || object.spec.f1 == ''"
	for name, of := range map[string]struct {
		expressions []string
		all, parts  int // expressions, and those with parts
	}{
		"bytes":       {slices.Repeat([]string{long}, 10), 10, 7},
		"expressions": {slices.Repeat([]string{"object.spec.f1 == 'a'"}, 70), policy.MaxExpressions, policy.MaxExpressions},
		"cost":        {[]string{costly, costly, "object.spec.f1 == 'a'"}, 3, 2},
		"keys":        {slices.Repeat([]string{"object.many.size() == 1"}, 60), 60, 50},
	} {
		t.Run(name, func(t *testing.T) {
			e := explainer.Explanations()
			l.observe(e, object, of.expressions...)
			all, with, size := e.Take(), 0, 0
			for _, x := range all {
				if len(x.GetParts()) > 0 {
					with++
				}
				for _, p := range x.GetParts() {
					size += len(p.GetText()) + len(p.GetValue())
				}
			}
			if len(all) != of.all || with != of.parts || size > policy.MaxExplainedBytes {
				t.Errorf("%d expressions, %d with parts, %d bytes; want %d and %d", len(all), with, size, of.all, of.parts)
			}
		})
	}
}

// spent is a meter of which nothing is left.
type spent struct{}

func (spent) Spend(context.Context, int64) error { return errors.New("spent") }
func (spent) Reserve(int64) bool                 { return false }

// ending cancels a review before it is explained.
type ending struct {
	policy.Observer

	cancel func()
}

func (e ending) Observe(o policy.Observation) {
	if o.Event == policy.False {
		e.cancel()
	}
	e.Observer.Observe(o)
}

// TestAnExplanationEndsWithItsReview when the time or the units of CEL are over, before an expression is evaluated and before it is explained.
func TestAnExplanationEndsWithItsReview(t *testing.T) {
	l := newLaboratory(t)
	explainer, err := policy.NewExplainer()
	if err != nil {
		t.Fatal(err)
	}
	object := map[string]any{
		"metadata": map[string]any{"name": "x"}, "list": make([]any, 400), "spec": map[string]any{"containers": []any{map[string]any{"image": "i"}}},
	}
	const costly = "variables.names.exists(n, n == 'a') || object.list.exists(a, object.list.exists(b, b == 1))"
	for name, of := range map[string]struct {
		meter  policy.Meter
		early  bool   // the time is over before the evaluation
		values string // of the expression as a whole
	}{
		"units": {spent{}, false, ""}, "time before": {nil, true, ""}, "time after": {nil, false, "error: operation interrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if of.early {
				cancel()
			}
			e := explainer.Explanations()
			l.observeWith(policy.WithReview(ctx, of.meter), ending{e, cancel}, object, costly)
			got := ""
			for _, x := range e.Take() {
				for _, p := range x.GetParts()[:min(1, len(x.GetParts()))] {
					got += p.GetValue()
				}
			}
			if got != of.values {
				t.Errorf("explained as %q, want %q", got, of.values)
			}
		})
	}
}

// TestTheExpressionsOfAllOutcomesAreBounded has outcomes of which each is within the bounds of a review.
func TestTheExpressionsOfAllOutcomesAreBounded(t *testing.T) {
	long := strings.Repeat("x", policy.MaxExplainedBytes/2)
	var outcomes []*admissionv1.HookOutcome
	for range policy.MaxExpressions {
		o := &admissionv1.HookOutcome{}
		for range 3 {
			o.Expressions = append(o.Expressions, &admissionv1.Expression{Parts: []*admissionv1.ExpressionPart{{Value: long}}})
		}
		outcomes = append(outcomes, o)
	}
	policy.BoundExpressions(outcomes)
	all, with := 0, 0
	for _, o := range outcomes {
		for _, x := range o.GetExpressions() {
			all++
			with += len(x.GetParts())
		}
	}
	if all != policy.MaxExpressions || with != 2 {
		t.Errorf("%d expressions, %d with parts", all, with)
	}
}
