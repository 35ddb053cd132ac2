// Package policy judges the policies of Kubernetes (ValidatingAdmissionPolicy and MutatingAdmissionPolicy) in this process: a review needs no host for
// them, no call and no encoding. A compiler compiles a definition once; with its bindings it is a [match.Policy], one hook of a snapshot.
//
// Expressions are compiled by the code of kube-apiserver (k8s.io/apiserver/pkg/admission/plugin/cel), with the bounds of [match.BoundCalls] around each
// call. The package selects the bindings that count, and folds the results of their expressions into a verdict. The plugins of kube-apiserver are the
// specification, and the tests ask them.
package policy

import (
	"runtime"
	"sync"

	celgo "github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Compiler compiles policies, in one environment of CEL for all of them. It may be used concurrently; one policy is compiled at a time, since compiling
// takes a processor for long.
//
// kube-apiserver has an environment for each policy with variables, in which these have their types: 0.5 MB. Here they have no type, and expressions are
// resolved when they are evaluated. Kubernetes' validation has checked the types before (package config/apiserver).
type Compiler struct {
	mu       sync.Mutex
	compiler *match.FastCompiler // nil before the first policy
}

// NewCompiler returns a compiler that has compiled nothing yet.
func NewCompiler() *Compiler { return &Compiler{} }

// compile compiles an expression whose result has any of the types, and lets others compute that are ready. mu is held.
func (c *Compiler) compile(text string, d cel.OptionalVariableDeclarations, types ...*celgo.Type) (x program) {
	defer runtime.Gosched()
	x.CompilationResult, x.uncounted = c.compiler.CompileUncounted(&expression{text, types}, d, environment.StoredExpressions)
	return x
}

// program is a compiled expression.
type program struct {
	cel.CompilationResult

	uncounted *match.Uncounted // nil if the costs of its policy are always counted
}

// compiled are the parts that policies of both kinds have. It is immutable.
type compiled struct {
	variables  []variable
	conditions []program
	costs      *costs // nil if they are always counted
	err        error  // the policy cannot be compiled at all

	paramKind      *schema.GroupVersionKind // nil without params
	configured     *Params                  // nil for params of clusters alone
	expressions    []asked
	readsNamespace bool // an expression may name namespaceObject
}

// reach is how far a request comes in a policy: the furthest of all bindings and params.
type reach uint8

const (
	unbound  reach = iota // no binding meets it
	bound                 // a binding meets it, and has no param
	excluded              // a binding has a param, with which the matchConditions exclude it
	decided               // it meets the matchConditions, or something failed
)

// skip is why the policy does not apply to the request: a Skip constant of package match; empty if it applies.
func (r reach) skip() string {
	return [...]string{match.SkipBindings, match.SkipParams, match.SkipConditions, ""}[r]
}

// variable is a variable of a policy.
type variable struct {
	program

	name string
}

// begin compiles the parts that policies of both kinds have. mu is held.
func (c *Compiler) begin(
	params *admissionregistrationv1.ParamKind, variables []admissionregistrationv1.Variable, conditions []admissionregistrationv1.MatchCondition,
) (p compiled, d cel.OptionalVariableDeclarations) {
	d.HasParams, d.HasAuthorizer = params != nil, true
	p.paramKind = paramKindOf(params)
	if c.compiler == nil {
		base, err := environments()
		if err == nil {
			c.compiler, err = match.NewCompiler(base)
		}
		if err != nil {
			return compiled{err: err}, d
		}
	}
	for i, v := range variables {
		p.ask(v.Expression, ".variables[%d].expression", i)
		p.variables = append(p.variables, variable{c.compile(v.Expression, d, celgo.AnyType, celgo.DynType), v.Name})
	}
	for i, condition := range conditions {
		p.ask(condition.Expression, ".matchConditions[%d].expression", i)
		p.conditions = append(p.conditions, c.compile(condition.Expression, d, p.types(celgo.BoolType)...))
	}
	return p, d
}

// bound computes the bounds of the costs of the policy, whose expressions beside variables are given. mu is held.
func (p *compiled) bound(all ...[]program) {
	if p.costs = newCosts(p.variables, all...); p.costs != nil {
		return
	}
	for i := range p.variables {
		p.variables[i].uncounted = nil
	}
	for _, programs := range all {
		for i := range programs {
			programs[i].uncounted = nil
		}
	}
}

// types are the types of an expression, which is checked when it is evaluated if there are variables: their types are not known here.
func (p *compiled) types(known ...*celgo.Type) []*celgo.Type {
	if len(p.variables) > 0 {
		return []*celgo.Type{celgo.AnyType}
	}
	return known
}

// environments are the environments of kube-apiserver's policies (getCompositionEnvTemplateWithStrictCost), with bounds of calls.
func environments() (*environment.EnvSet, error) {
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	env, err := base.Env(environment.StoredExpressions)
	if err != nil {
		return nil, err //nolint:wrapcheck // it depends on no input
	}
	//nolint:wrapcheck // it depends on no input
	return base.Extend(environment.VersionedOptions{
		IntroducedVersion: utilversion.MajorMinor(1, 0), ProgramOptions: match.BoundCalls(env),
		EnvOptions: []celgo.EnvOption{celgo.Variable(cel.VariableVarName, celgo.MapType(celgo.StringType, celgo.DynType))},
	})
}

// expression is an expression as kube-apiserver's compiler takes it.
type expression struct {
	text  string
	types []*celgo.Type
}

// GetExpression implements [cel.ExpressionAccessor].
func (e *expression) GetExpression() string { return e.text }

// ReturnTypes implements [cel.ExpressionAccessor].
func (e *expression) ReturnTypes() []*celgo.Type { return e.types }
