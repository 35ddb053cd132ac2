package match

import (
	"runtime"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/portcullis-mesh/portcullis/internal/weakmap"
)

// Expressions compiles the expressions of matchConditions in kube-apiserver's own CEL environment: each expression once, as long as the result is in
// use. Validation and Compile share compiled expressions through Object.Conditions.
//
// Compiling takes a processor for long, beside reviews: one expression is compiled at a time, and others get to run between two of them. Its methods
// may be called concurrently.
type Expressions struct {
	turn        sync.Mutex            // held while an expression is compiled
	compiler    admissioncel.Compiler // nil before the first; held by turn, as the next one
	requestOnly requestOnly

	known weakmap.Map[Expression]
}

// Expression is a compiled expression. It is immutable. One takes some 10 kB.
type Expression struct {
	result admissioncel.CompilationResult
	// requestOnly: it reads no object, so that none need be decoded.
	requestOnly bool
	// entry has the parts that an API server can decide (Hook.EntryConditions).
	entry []string
}

// NewExpressions returns a compiler that has compiled nothing yet.
func NewExpressions() *Expressions { return &Expressions{} }

// Compile compiles an expression, unless that is known. fresh is true if it was not.
func (e *Expressions) Compile(expression string) (compiled *Expression, fresh bool) {
	expression = strings.TrimSpace(expression) // as Kubernetes' validation does
	if known := e.known.Get(expression); known != nil {
		return known, false
	}
	e.turn.Lock()
	defer runtime.Gosched()
	defer e.turn.Unlock()
	if known := e.known.Get(expression); known != nil {
		return known, false
	}
	compiled = e.compile(expression)
	e.known.Put(expression, compiled)
	return compiled, true
}

// Check returns why an expression may not be compiled, beside its errors: its regular expressions take more than MaxRepeated. An expression that cannot
// be parsed has no such fault.
func (e *Expressions) Check(expression string) error {
	e.turn.Lock()
	defer runtime.Gosched()
	defer e.turn.Unlock()
	if parsed := e.requestOnly.parse(expression); parsed != nil {
		return checkRegexes(parsed)
	}
	return nil
}

// Err is the error of the expression; nil when it compiles.
func (x *Expression) Err() *apiservercel.Error { return x.result.Error }

// as is the expression as a condition that has a name and was written so.
func (x *Expression) as(c *matchconditions.MatchCondition) admissioncel.CompilationResult {
	result := x.result
	result.ExpressionAccessor = c
	return result
}

// compile compiles an expression in the environment for new expressions. kube-apiserver compiles it again in its environment for stored expressions,
// which has everything that this environment has. turn is held.
func (e *Expressions) compile(expression string) *Expression {
	if e.compiler == nil {
		e.compiler = newCompiler()
	}
	parsed := e.requestOnly.parse(expression)
	if parsed != nil {
		if err := checkRegexes(parsed); err != nil {
			return &Expression{result: admissioncel.CompilationResult{Error: &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: err.Error()}}}
		}
	}
	result := e.compiler.CompileCELExpression(&matchconditions.MatchCondition{Expression: expression},
		admissioncel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
	x := &Expression{result: result}
	if result.Error == nil && parsed != nil {
		x.requestOnly = e.requestOnly.holds(parsed)
		x.entry = entryConditionsOf(parsed)
	}
	return x
}

// newCompiler is a compiler as Kubernetes' validation has it, with BoundCalls. It is costly.
func newCompiler() admissioncel.Compiler {
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	env, err := base.Env(environment.NewExpressions)
	if err == nil {
		base, err = base.Extend(environment.VersionedOptions{
			IntroducedVersion: utilversion.MajorMinor(1, 0), ProgramOptions: BoundCalls(env),
		})
	}
	var compiler admissioncel.Compiler
	if err == nil {
		compiler, err = NewCompiler(base)
	}
	if err != nil {
		panic(err) //nolint:forbidigo // as MustBaseEnvSet: it depends on no input
	}
	return compiler
}

// requestOnly finds the expressions that look at the request alone: those that compile where there is neither object nor oldObject. A variable of a
// later Kubernetes is not there either, and counts as the object.
type requestOnly struct {
	env *cel.Env // nil until needed
}

// parse returns an expression that is not checked yet; nil if it cannot be parsed.
func (r *requestOnly) parse(expression string) *cel.Ast {
	if r.env == nil {
		r.env = mustRequestEnv()
	}
	parsed, issues := r.env.Parse(expression)
	if issues.Err() != nil {
		return nil
	}
	return parsed
}

// holds reports whether an expression, which compiles, can see no object. An answer of false is always right.
func (r *requestOnly) holds(parsed *cel.Ast) bool {
	_, issues := r.env.Check(parsed)
	return issues.Err() == nil
}

// mustRequestEnv is the environment of matchConditions without the objects. The compiler that counts has seen the types of
// the others; here it is their names that matter.
func mustRequestEnv() *cel.Env {
	base, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Env(environment.StoredExpressions)
	if err == nil {
		base, err = base.Extend(
			cel.Variable(admissioncel.RequestVarName, cel.DynType),
			cel.Variable(admissioncel.NamespaceVarName, cel.DynType),
			cel.Variable(admissioncel.AuthorizerVarName, cel.DynType),
		)
	}
	if err != nil {
		panic(err) //nolint:forbidigo // as MustBaseEnvSet: it depends on no input
	}
	return base
}
