package offline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
)

// Expression is an expression of a policy that decided, with the values of its parts. Its JSON form is stable: fields may be added.
type Expression struct {
	// Policy is the kind and the name of the policy, and Field the expression below its spec.
	Policy string `json:"policy"`
	Field  string `json:"field"`
	// Outcome is "false" or "failed".
	Outcome string        `json:"outcome"`
	Parts   []policy.Part `json:"parts"`
}

// Outcomes of expressions.
const (
	expressionFalse  = "false"
	expressionFailed = "failed"
)

// maxExpressions bounds the expressions of one review.
const maxExpressions = 64

// Explanations collect the expressions that are false or fail, while a review is judged; nil collects none. They are for one review at a time.
type Explanations struct {
	explainer *policy.Explainer

	mu  sync.Mutex // policies in shadow are judged beside the review
	all []Expression
}

var _ policy.Observer = (*Explanations)(nil)

// NewExplanations returns explanations of nothing yet.
func NewExplanations() (*Explanations, error) {
	explainer, err := policy.NewExplainer()
	return &Explanations{explainer: explainer}, err //nolint:wrapcheck // it depends on no input
}

// Observing is a context for a review whose expressions are collected.
func (e *Explanations) Observing(ctx context.Context) context.Context {
	if e == nil {
		return ctx
	}
	return policy.WithObserver(ctx, e)
}

// Observe implements [policy.Observer].
func (e *Explanations) Observe(o policy.Observation) {
	outcome := map[policy.Event]string{policy.False: expressionFalse, policy.Failed: expressionFailed}[o.Event]
	var parts []policy.Part
	if outcome != "" {
		parts = e.explainer.Explain(o) // it may observe, too
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch id := o.Policy.ID(); {
	case o.Event == policy.Begun: // anew, if it was interrupted
		e.all = slices.DeleteFunc(e.all, func(x Expression) bool { return x.Policy == id })
	case outcome != "" && o.Expression != "" && len(e.all) < maxExpressions:
		e.all = append(e.all, Expression{Policy: id, Field: strings.TrimPrefix(o.Field, "."), Outcome: outcome, Parts: parts})
	}
}

// Take returns the expressions since the last call.
func (e *Explanations) Take() []Expression {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.all
	e.all = nil
	return all
}

// Lines are the expression for people: a head, and a line for each part.
func (x *Expression) Lines() []string {
	word := "is false"
	if x.Outcome == expressionFailed {
		word = expressionFailed
	}
	lines := []string{fmt.Sprintf("%s: %s %s:", x.Policy, x.Field, word)}
	for _, p := range x.Parts {
		lines = append(lines, "  "+p.String())
	}
	return lines
}
