package policy

import (
	"context"
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Observer receives the decisions of the expressions of policies, in the goroutine of their review. It is for tools, and for
// reviews of people who ask; others have none.
type Observer interface {
	// Observe is called for each event, in their order.
	Observe(o Observation)
}

// Observation is an event in the evaluation of a policy.
type Observation struct {
	// Policy is the policy. Its ID names the document.
	Policy match.Policy
	// Field is the expression below the spec of the policy of Kubernetes, such as .validations[0]; empty for the policy as a whole.
	Field string
	// Binding is the name of a binding; empty unless Event is Bound or Unbound.
	Binding string
	// Event is the event.
	Event Event
	// Expression is the text of a matchCondition or a validation.
	Expression string
	// Cost are the units of CEL of one evaluation of an expression, Total are the units of all evaluations that share its budget, so far, and Budget
	// bounds them. They are set if Event is Spent.
	Cost, Total, Budget int64

	activation *activation // of Expression
}

// Event is the kind of an [Observation].
type Event uint8

// The events.
const (
	// Begun: the policy begins to judge a request. A policy that was interrupted, or is reinvoked, begins anew.
	Begun Event = iota
	// Bound and Unbound: the request meets the matchResources of a binding, or does not.
	Bound
	Unbound
	// True and False are values of a matchCondition or a validation.
	True
	False
	// Failed: an expression has no value, or a mutation could not be applied.
	Failed
	// Changed and Unchanged are effects of a mutation on the object.
	Changed
	Unchanged
	// Spent: an expression was evaluated, which may be a variable or a message too. The Field is empty.
	Spent
	// Ended: the policy has judged.
	Ended
)

// WithObserver returns a context for a review whose policies are observed.
func WithObserver(ctx context.Context, o Observer) context.Context {
	return context.WithValue(ctx, observerKey{}, o)
}

// observerKey is the key of the observer, in a context.
type observerKey struct{}

// observed tells the observer of one policy, if there is any.
type observed struct {
	observer Observer
	policy   match.Policy
}

func observe(ctx context.Context, p match.Policy) observed {
	o, _ := ctx.Value(observerKey{}).(Observer)
	return observed{o, p}
}

// policyIs tells of an event of the policy as a whole.
func (o observed) policyIs(e Event) {
	if o.observer != nil {
		o.observer.Observe(Observation{Policy: o.policy, Event: e})
	}
}

// binding tells whether a request meets a binding.
func (o observed) binding(e Event, name string) {
	if o.observer != nil {
		o.observer.Observe(Observation{Policy: o.policy, Event: e, Binding: name})
	}
}

// is tells of an event of an expression.
func (o observed) is(e Event, list string, i int) {
	if o.observer != nil {
		o.observer.Observe(Observation{Policy: o.policy, Event: e, Field: place{list, i}.String()})
	}
}

// place is an expression in a list of the spec of a policy.
type place struct {
	list string
	i    int
}

func (p place) String() string { return fmt.Sprintf(".%s[%d]", p.list, p.i) }

// has tells of the value of an expression.
func (o observed) has(a *activation, x *program, value ref.Val, failure error, at place) {
	if o.observer == nil {
		return
	}
	of := Observation{Policy: o.policy, Field: at.String(), Expression: x.ExpressionAccessor.GetExpression()}
	if x.Error == nil { // else it was not evaluated
		of.activation = a
	}
	switch {
	case failure != nil:
		of.Event = Failed
	case value == types.True:
		of.Event = True
	case value == types.False:
		of.Event = False
	default:
		return
	}
	o.observer.Observe(of)
}

// mutation tells of the effect of a mutation.
func (o observed) mutation(failure error, changed bool, i int) {
	e := Unchanged
	switch {
	case failure != nil:
		e = Failed
	case changed:
		e = Changed
	}
	o.is(e, "mutations", i)
}
