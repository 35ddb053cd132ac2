package match

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// exploding is a compiler that cannot stand one expression.
type exploding struct{ cel.Compiler }

func (e exploding) CompileCELExpression(a cel.ExpressionAccessor, o cel.OptionalVariableDeclarations, m environment.Type) cel.CompilationResult {
	if a.GetExpression() == `"boom"` {
		panic("boom")
	}
	return e.Compiler.CompileCELExpression(a, o, m)
}

// compiledBy are expressions that a compiler compiles.
func compiledBy(c cel.Compiler) func() *Expressions {
	e := NewExpressions()
	e.compiler = c
	return func() *Expressions { return e }
}

func TestAnObjectThatPanicsIsLeftOutAlone(t *testing.T) {
	object := func(name string, expressions ...string) Object {
		c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
		url := "https://hook.example.com"
		for _, e := range expressions {
			c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
				Name: "hook.io", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url},
				MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "c", Expression: e}},
			})
		}
		return Object{Source: name + ".yaml", Validating: c}
	}
	in := Input{Objects: []Object{object("a", "true"), object("b", "true", `"boom"`), object("c", "true")}}
	snapshot, findings := compile(in, compiledBy(exploding{newCompiler()}))
	if len(findings) != 1 || findings[0].Code != CodeRejected || findings[0].Source != "b.yaml" || !strings.Contains(findings[0].Message, "boom") {
		t.Errorf("findings %v", findings)
	}
	if len(snapshot.Hooks()) != 2 || snapshot.Hooks()[0].ID.Configuration != "a" || snapshot.Hooks()[1].ID.Configuration != "c" {
		t.Errorf("hooks %v", snapshot.Hooks())
	}
}

func TestConditionsCostNothingWhereThereAreNone(t *testing.T) {
	_, findings := compile(Input{Objects: []Object{{Validating: &admissionregistrationv1.ValidatingWebhookConfiguration{}}}},
		func() *Expressions { t.Error("a compiler is made"); return NewExpressions() })
	if len(findings) > 0 {
		t.Errorf("findings %v", findings)
	}
}

// An expression is compiled once, whatever else changes, and however many hooks have it.
func TestAnExpressionIsCompiledOnce(t *testing.T) {
	compiled := 0
	counting := compiledBy(counter{newCompiler(), &compiled})
	ignore := admissionregistrationv1.Ignore
	hook := func(expression string, policy *admissionregistrationv1.FailurePolicyType) Object {
		url := "https://hook.example.com"
		return Object{Validating: &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "hook.io", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url}, FailurePolicy: policy,
				MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "c", Expression: expression}},
			}},
		}}
	}
	var last *Snapshot
	for _, step := range []struct {
		what   string
		object Object
		route  Route
		want   int
		broken bool
	}{
		{what: "the first time", object: hook("true", nil), want: 1},
		{what: "nothing has changed", object: hook("true", nil), want: 1},
		{what: "another route", object: hook("true", nil), route: Route{Clusters: []string{"b"}}, want: 1},
		{what: "another policy", object: hook("true", &ignore), want: 1},
		{what: "more space around it", object: hook(" true\n", &ignore), want: 1},
		{what: "another expression", object: hook("unknown", &ignore), want: 2, broken: true},
		{what: "it is broken still", object: hook("unknown", &ignore), want: 2, broken: true},
		{what: "in shadow as before", object: hook("unknown", nil), route: Route{Shadow: true}, want: 2, broken: true},
		{what: "out of the shadow", object: hook("unknown", nil), want: 2, broken: true},
		{what: "the first one again", object: hook("true", nil), want: 2},
	} {
		in := Input{Objects: []Object{step.object}, Last: last, Routes: []RouteBinding{{Configuration: "a", Route: step.route}}}
		snapshot, findings := compile(in, counting)
		if compiled != step.want {
			t.Errorf("%s: compiled %d times, want %d", step.what, compiled, step.want)
		}
		if step.broken != slices.ContainsFunc(findings, func(f Finding) bool { return f.Code == CodeCondition }) {
			t.Errorf("%s: findings %v", step.what, findings)
		}
		last = snapshot
	}
}

// counter is a compiler that counts its compilations.
type counter struct {
	cel.Compiler
	compiled *int
}

func (c counter) CompileCELExpression(a cel.ExpressionAccessor, o cel.OptionalVariableDeclarations, m environment.Type) cel.CompilationResult {
	*c.compiled++
	return c.Compiler.CompileCELExpression(a, o, m)
}
