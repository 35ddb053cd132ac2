// Package policy judges the policies of Kubernetes (ValidatingAdmissionPolicy) in this process: a review needs no host for them, no call and no
// encoding. A compiler compiles a definition once; with its bindings it is a [match.Policy], one hook of a snapshot.
//
// Expressions are compiled by the code of kube-apiserver (k8s.io/apiserver/pkg/admission/plugin/cel), with the bounds of [match.BoundCalls] around each
// call. The package selects the bindings that count, and folds the results of their expressions into a verdict. The validating plugin of kube-apiserver
// is the specification, and the tests ask it.
package policy

import (
	"sync"

	celgo "github.com/google/cel-go/cel"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Compiler compiles policies. Those without variables share one environment of CEL. It may be used concurrently; one policy is compiled at a time,
// since compiling takes a processor for long.
type Compiler struct {
	mu     sync.Mutex
	base   *environment.EnvSet // nil before the first policy
	shared cel.Compiler
}

// NewCompiler returns a compiler that has compiled nothing yet.
func NewCompiler() *Compiler { return &Compiler{} }

// expressions compiles the expressions of one policy.
type expressions struct {
	cel.Compiler

	composed *cel.CompositedCompiler // nil without variables
}

// newExpressions returns a compiler for a policy, whose variables are compiled into an environment of its own.
func (c *Compiler) newExpressions(variables []variable, d cel.OptionalVariableDeclarations) (*expressions, error) {
	if c.base == nil {
		base, err := environments()
		if err != nil {
			return nil, err
		}
		c.base, c.shared = base, cel.NewCompiler(base)
	}
	if len(variables) == 0 {
		return &expressions{Compiler: c.shared}, nil
	}
	composed, err := cel.NewCompositedCompiler(c.base)
	if err != nil {
		return nil, err //nolint:wrapcheck // it depends on no input
	}
	for i := range variables {
		composed.CompileAndStoreVariable(&variables[i], d, environment.StoredExpressions)
	}
	return &expressions{Compiler: composed.Compiler, composed: composed}, nil
}

func (x *expressions) compile(text string, d cel.OptionalVariableDeclarations, types ...*celgo.Type) cel.CompilationResult {
	return x.CompileCELExpression(&expression{text, types}, d, environment.StoredExpressions)
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

// variable is a variable of a policy.
type variable struct {
	expression

	name string
}

// GetName implements [cel.NamedExpressionAccessor].
func (v *variable) GetName() string { return v.name }
