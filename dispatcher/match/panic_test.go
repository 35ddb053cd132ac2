package match

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// exploding is a compiler that cannot stand one expression.
type exploding struct{ cel.ConditionCompiler }

func (e exploding) CompileCondition(a []cel.ExpressionAccessor, o cel.OptionalVariableDeclarations, m environment.Type) cel.ConditionEvaluator {
	if a[0].GetExpression() == `"boom"` {
		panic("boom")
	}
	return e.ConditionCompiler.CompileCondition(a, o, m)
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
	snapshot, findings := compile(in, func() cel.ConditionCompiler { return exploding{newConditionCompiler()} })
	if len(findings) != 1 || findings[0].Code != CodeRejected || findings[0].Source != "b.yaml" || !strings.Contains(findings[0].Message, "boom") {
		t.Errorf("findings %v", findings)
	}
	if len(snapshot.Hooks()) != 2 || snapshot.Hooks()[0].ID.Configuration != "a" || snapshot.Hooks()[1].ID.Configuration != "c" {
		t.Errorf("hooks %v", snapshot.Hooks())
	}
}

func TestConditionsCostNothingWhereThereAreNone(t *testing.T) {
	_, findings := compile(Input{Objects: []Object{{Validating: &admissionregistrationv1.ValidatingWebhookConfiguration{}}}},
		func() cel.ConditionCompiler { t.Error("a compiler is made"); return nil })
	if len(findings) > 0 {
		t.Errorf("findings %v", findings)
	}
}
