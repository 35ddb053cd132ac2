package offline

import (
	"cmp"
	"fmt"
	"strings"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Expression is an expression of a policy that is false or failed, with the values of its parts. Its JSON form is stable: fields may be added.
type Expression struct {
	// Policy is the kind and the name of the policy, and Field the expression below its spec.
	Policy string `json:"policy"`
	Field  string `json:"field"`
	// Outcome is "false" or "failed".
	Outcome string `json:"outcome"`
	Parts   []Part `json:"parts"`
}

// Part is a part of an expression: a message ExpressionPart of its outcome.
type Part struct {
	Depth uint32 `json:"depth"`
	Text  string `json:"text"`
	Value string `json:"value"`
}

// ExpressionsOf are the expressions in the outcomes of a review.
func ExpressionsOf(outcomes []*admissionv1.HookOutcome) (all []Expression) {
	for _, o := range outcomes {
		for _, x := range o.GetExpressions() {
			one := Expression{Policy: o.GetConfiguration(), Field: x.GetField(), Outcome: x.GetOutcome(), Parts: []Part{}}
			for _, p := range x.GetParts() {
				one.Parts = append(one.Parts, Part{Depth: p.GetDepth(), Text: p.GetText(), Value: p.GetValue()})
			}
			all = append(all, one)
		}
	}
	return all
}

// Lines are the expression for people: a head, and a line for each part.
func (x *Expression) Lines() []string {
	word := "is false"
	if x.Outcome != "false" {
		word = x.Outcome
	}
	lines := []string{fmt.Sprintf("%s: %s %s:", x.Policy, x.Field, word)}
	for _, p := range x.Parts {
		lines = append(lines, fmt.Sprintf("  %s%s = %s", strings.Repeat("  ", int(p.Depth)), p.Text, cmp.Or(p.Value, "?")))
	}
	return lines
}
