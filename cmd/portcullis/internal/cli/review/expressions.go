package review

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
)

// expressionReport is an expression of a policy that decided, with the values of its parts.
type expressionReport struct {
	// Policy is the kind and the name of the policy, and Field the expression below its spec.
	Policy string `json:"policy"`
	Field  string `json:"field"`
	// Outcome is "false" or "failed".
	Outcome string        `json:"outcome"`
	Parts   []policy.Part `json:"parts"`
}

// maxExpressions bounds the expressions of one stage.
const maxExpressions = 64

// explanations collects the expressions that are false or fail, while a review is judged; nil collects none.
type explanations struct {
	explainer *policy.Explainer

	mu  sync.Mutex // policies in shadow are judged beside the review
	all []expressionReport
}

var _ policy.Observer = (*explanations)(nil)

// observing is a context in which the expressions of policies are collected.
func (e *explanations) observing(ctx context.Context) context.Context {
	if e == nil {
		return ctx
	}
	return policy.WithObserver(ctx, e)
}

// Observe implements [policy.Observer].
func (e *explanations) Observe(o policy.Observation) {
	outcome := map[policy.Event]string{policy.False: "false", policy.Failed: outcomeFailed}[o.Event]
	e.mu.Lock()
	defer e.mu.Unlock()
	switch id := o.Policy.ID(); {
	case o.Event == policy.Begun: // anew, if it was interrupted
		e.all = slices.DeleteFunc(e.all, func(x expressionReport) bool { return x.Policy == id })
	case outcome != "" && o.Expression != "" && len(e.all) < maxExpressions:
		e.all = append(e.all, expressionReport{Policy: id, Field: strings.TrimPrefix(o.Field, "."), Outcome: outcome, Parts: e.explainer.Explain(o)})
	}
}

// taken are the expressions since the last call.
func (e *explanations) taken() []expressionReport {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.all
	e.all = nil
	return all
}

// write writes the expression, with a line for each part.
func (x *expressionReport) write(w io.Writer) error {
	word := "is false"
	if x.Outcome == outcomeFailed {
		word = outcomeFailed
	}
	if _, err := fmt.Fprintf(w, "  %s: %s %s:\n", printer.Text(x.Policy), x.Field, word); err != nil {
		return err
	}
	for _, p := range x.Parts {
		if _, err := fmt.Fprintf(w, "    %s\n", printer.Text(p.String())); err != nil {
			return err
		}
	}
	return nil
}
