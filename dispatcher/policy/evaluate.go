package policy

import (
	"context"
	"fmt"
	"maps"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubetypes "k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/lazy"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/evaluation"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// input is a request in one version, as expressions see it. It belongs to one goroutine. All policies of a review that take the version share it.
type input struct {
	versioned                     *admission.VersionedAttributes
	seen                          schema.GroupVersionResource
	object, oldObject             any
	authorizer, requestAuthorizer any // nil without an authorizer
	attributes                    *match.Attributes
	params, namespace             any                // namespace is null until a policy that reads it looks it up
	longest                       conversion.Longest // bounds the values of all but requests
}

// Meter counts the cost of the policies of one review, in one goroutine.
type Meter interface {
	// Spend counts units of CEL that an expression has cost. The error ends the evaluation of its policy. It may wait, as long as ctx.
	Spend(ctx context.Context, units int64) error
	// Reserve reports whether expressions may be evaluated without a count of their costs, which are no more than the units. If not, they are counted.
	Reserve(units int64) bool
}

// Spend counts units of CEL by the meter of [WithReview]; without one it does nothing.
func Spend(ctx context.Context, units int64) error {
	if m, ok := ctx.Value(meterKey{}).(Meter); ok {
		return m.Spend(ctx, units) //nolint:wrapcheck // it has all words
	}
	return nil
}

// reserve is Reserve of the meter of [WithReview]; without one it is true.
func reserve(ctx context.Context, units int64) bool {
	m, ok := ctx.Value(meterKey{}).(Meter)
	return !ok || m.Reserve(units)
}

// meterKey is the key of the meter of a review, in a context.
type meterKey struct{}

// inputsKey is the key of the inputs of a review, in a context.
type inputsKey struct{}

// inputKey is an object in a version.
type inputKey struct {
	attributes *match.Attributes
	kind       schema.GroupVersionKind
}

// WithReview returns a context for the policies of one review, in one goroutine. They share the variables that are made of the request, and a meter,
// which may be nil.
func WithReview(ctx context.Context, m Meter) context.Context {
	ctx = context.WithValue(ctx, meterKey{}, m)
	return context.WithValue(context.WithValue(ctx, inputsKey{}, map[inputKey]*input{}), invocationsKey{}, map[*Mutating]*invocations{})
}

// evaluationKey is the key of the function of [WithEvaluation], in a context.
type evaluationKey struct{}

// WithEvaluation returns a context in which begin bounds the evaluation of expressions more narrowly than ctx, which bounds look-ups. begin is called
// when an evaluation begins, so that no look-up before the first evaluation takes of its time. Its context is made from ctx.
func WithEvaluation(ctx context.Context, begin func() context.Context) context.Context {
	return context.WithValue(ctx, evaluationKey{}, begin)
}

// Evaluation begins an evaluation, and returns the context that bounds it: ctx without [WithEvaluation].
func Evaluation(ctx context.Context) context.Context {
	if begin, ok := ctx.Value(evaluationKey{}).(func() context.Context); ok {
		return begin()
	}
	return ctx
}

// invocationsKey is the key of the invocations of a review, in a context.
type invocationsKey struct{}

// againKey is the key of a reinvocation, in a context.
type againKey struct{}

// Again returns a context for the reinvocation of policies in a review.
func Again(ctx context.Context) context.Context { return context.WithValue(ctx, againKey{}, true) }

// invocations are the bindings and params for which a policy has been evaluated. In a reinvocation these alone count, and only if the policy is to be
// reinvoked: kube-apiserver matches all policies again, and reinvokes those it has invoked (policyReinvokeContext of its mutating plugin).
type invocations struct {
	begun map[invocation]bool
	again bool
}

// invocation is a binding, and the param for which it has the policy evaluated.
type invocation struct {
	*mutatingBinding

	param kubetypes.NamespacedName
}

// invocationsOf begins the evaluation of a policy for a review.
func invocationsOf(ctx context.Context, m *Mutating) *invocations {
	all, _ := ctx.Value(invocationsKey{}).(map[*Mutating]*invocations)
	if ctx.Value(againKey{}) != nil {
		before := all[m]
		if before == nil || m.Reinvocation() != admissionregistrationv1.IfNeededReinvocationPolicy {
			before = &invocations{}
		}
		return &invocations{begun: before.begun, again: true}
	}
	made := &invocations{begun: map[invocation]bool{}}
	if all != nil {
		all[m] = made
	}
	return made
}

// begin reports whether the policy counts for a binding and a param.
func (i *invocations) begin(b *mutatingBinding, p param) bool {
	one := invocation{mutatingBinding: b}
	if p != nil {
		one.param = kubetypes.NamespacedName{Namespace: p.GetNamespace(), Name: p.GetName()}
	}
	if !i.again {
		i.begun[one] = true
	}
	return i.begun[one]
}

// inputOf returns the request in the version that a policy takes.
func inputOf(ctx context.Context, a *match.Attributes, as *conversion.ResourceKind) (*input, error) {
	shared, _ := ctx.Value(inputsKey{}).(map[inputKey]*input)
	key := inputKey{a, a.Seen(as).Kind}
	if known := shared[key]; known != nil {
		return known, nil
	}
	made, err := newInput(ctx, a, as)
	if err == nil && shared != nil {
		maps.DeleteFunc(shared, func(k inputKey, _ *input) bool { return k.attributes != a }) // the object of before a change is not needed again
		shared[key] = made
	}
	return made, err
}

// newInput prepares a request in the version that a policy takes.
func newInput(ctx context.Context, a *match.Attributes, as *conversion.ResourceKind) (*input, error) {
	versioned, longest, err := a.Versioned(ctx, as)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller adds the words of kube-apiserver
	}
	in := &input{
		attributes: a, versioned: versioned, seen: a.Seen(as).Resource, longest: longest,
		object: match.Content(versioned.VersionedObject), oldObject: match.Content(versioned.VersionedOldObject),
	}
	if authorizer := a.Cluster().Authorizer(); authorizer != nil {
		in.authorizer = library.NewAuthorizerVal(versioned.GetUserInfo(), authorizer)
		in.requestAuthorizer = library.NewResourceAuthorizerVal(versioned.GetUserInfo(), authorizer, versioned)
	}
	return in, nil
}

// with is the request with another object, in the same version.
func (in *input) with(object []byte) (*input, error) {
	content, longest, err := conversion.Content(object)
	if err != nil {
		return nil, fmt.Errorf("the changed object is not JSON: %w", err)
	}
	versioned, changed := *in.versioned, *in
	versioned.VersionedObject = &unstructured.Unstructured{Object: content}
	changed.versioned, changed.object, changed.longest = &versioned, content, in.longest.Or(longest)
	return &changed, nil
}

// budget bounds the cost of expressions.
type budget struct {
	limit, left int64
	observed    observed
}

// budget is a budget of which nothing is spent.
func (o observed) budget(limit int64) budget { return budget{limit, limit, o} }

// tell tells of the cost of an expression. more is the cost since the last time that left has changed.
func (b *budget) tell(cost, more int64) {
	if o := b.observed; o.observer != nil {
		o.observer.Observe(Observation{Policy: o.policy, Event: Spent, Cost: cost, Total: b.limit - b.left + more, Budget: b.limit})
	}
}

// activation has the variables of one evaluation: of matchConditions, validations, messages or audit annotations.
type activation struct {
	*input

	budget

	resource   schema.GroupVersionResource // of the variable request
	variables  any
	spent      int64 // on variables, by the expression that is being evaluated
	authorizes bool  // authorizer has a value: not so in messages and audit annotations, nor in variables that these read
	uncounted  bool  // the costs are below the budget, and are not counted

	interrupt evaluation.Interrupt
}

// activate begins an evaluation.
func (p *compiled) activate(ctx context.Context, in *input, resource schema.GroupVersionResource, b budget, authorizes bool) *activation {
	a := &activation{input: in, budget: b, resource: resource, authorizes: authorizes, interrupt: evaluation.NewInterrupt(Evaluation(ctx))}
	a.uncounted = p.costs.isUncounted(ctx, in, a)
	if len(p.variables) > 0 {
		a.variables = p.lazyVariables(a)
	}
	return a
}

// lazyVariables are the variables of a policy, each evaluated when it is first read (CompositionContext of k8s.io/apiserver's plugin/cel).
func (p *compiled) lazyVariables(a *activation) *lazy.MapValue {
	all := lazy.NewMapValue(types.NewObjectType("kubernetes.variables"))
	for i := range p.variables {
		x := &p.variables[i]
		name := x.name
		all.Append(name, func(*lazy.MapValue) ref.Val {
			if x.Error != nil {
				return types.NewErr("composited variable %q fails to compile: %v", name, x.Error)
			}
			value, cost, err := a.run(&x.program)
			if cost == evaluation.UnknownCost {
				return types.NewErr("unable to calculate cost of variable %q", name)
			}
			a.spent += cost
			a.tell(cost, a.spent)
			if err != nil {
				return types.NewErr("composited variable %q fails to evaluate: %v", name, err)
			}
			return value
		})
	}
	return all
}

var _ interpreter.Activation = (*activation)(nil)

// ResolveName implements [interpreter.Activation].
func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case cel.ObjectVarName:
		return a.object, true
	case cel.OldObjectVarName:
		return a.oldObject, true
	case cel.ParamsVarName:
		return a.params, true
	case cel.RequestVarName:
		return a.requestValue(), true
	case cel.NamespaceVarName:
		return a.namespace, true
	case cel.AuthorizerVarName:
		return a.authorizer, a.authorizes && a.authorizer != nil
	case cel.RequestResourceAuthorizerVarName:
		return a.requestAuthorizer, a.authorizes && a.requestAuthorizer != nil
	case cel.VariableVarName:
		return a.variables, true
	case evaluation.InterruptedVarName:
		return a.interrupt.Value(), true
	}
	return nil, false
}

// requestValue is the variable request: its resource is in the version that a policy takes or, for matchConditions, that the client asked for.
func (a *activation) requestValue() any {
	request, _, err := a.attributes.RequestVariable(a.resource, a.versioned.VersionedKind)
	if err != nil {
		return types.WrapErr(err)
	}
	return request
}

// Parent implements [interpreter.Activation].
func (a *activation) Parent() interpreter.Activation { return nil }

// run evaluates an expression. The cost is 0 where it is not counted.
func (a *activation) run(x *program) (value ref.Val, cost int64, err error) {
	if a.uncounted {
		value, _, err = x.uncounted.Program.Eval(a)
		return value, 0, err
	}
	value, details, err := x.Program.Eval(a)
	return value, evaluation.CostOf(details), err
}

// evaluate evaluates one expression, as Evaluate of kube-apiserver's activation does. failed is the error of the expression; err ends the evaluation of
// all that follow: the budget is spent.
func (a *activation) evaluate(ctx context.Context, x *program) (value ref.Val, failed, err error) {
	if err := evaluation.Compiled(&x.CompilationResult); err != nil {
		return nil, err, nil
	}
	if err := a.interrupt.Begin(); err != nil {
		return nil, nil, fmt.Errorf("the time of the policy is over: %w", err)
	}
	value, units, failed := a.run(x)
	spent := a.spent
	if a.spent = 0; spent > 0 {
		if err := a.spend(ctx, spent); err != nil {
			return nil, nil, err
		}
	}
	if units == evaluation.UnknownCost {
		return nil, nil, evaluation.ErrUnknownCost(&x.CompilationResult)
	}
	a.tell(units, units)
	if err := a.spend(ctx, units); err != nil {
		return nil, nil, err
	}
	if failed != nil {
		return nil, evaluation.Failed(&x.CompilationResult, failed), nil
	}
	return value, nil, nil
}

// matches evaluates the matchConditions, as Match of kube-apiserver's matchconditions does: without namespaceObject.
func (p *compiled) matches(ctx context.Context, in *input, of observed) (bool, error) {
	if len(p.conditions) == 0 {
		return true, nil
	}
	withoutNamespace := *in
	withoutNamespace.namespace = nil
	a := p.activate(ctx, &withoutNamespace, in.versioned.GetResource(), of.budget(celconfig.RuntimeCELCostBudgetMatchConditions), true)
	values, errs := make([]any, len(p.conditions)), []error(nil)
	for i := range p.conditions {
		value, failure, err := a.evaluate(ctx, &p.conditions[i])
		if err != nil {
			return false, err
		}
		if values[i] = value; failure != nil {
			errs = append(errs, failure)
		}
		of.has(a, &p.conditions[i], value, failure, place{"matchConditions", i})
	}
	for _, value := range values {
		if value == types.False {
			return false, nil
		}
	}
	return true, utilerrors.NewAggregate(errs) //nolint:wrapcheck // the words of kube-apiserver
}

func (a *activation) spend(ctx context.Context, cost int64) error {
	if cost > a.left {
		return evaluation.ErrOverBudget()
	}
	a.left -= cost
	return Spend(ctx, cost)
}
