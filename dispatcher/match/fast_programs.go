package match

import (
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// NewCompiler returns kube-apiserver's compiler, with faster programs: it is there for speed. Each evaluation of a program of kube-apiserver fills a map
// with the cost trackers of 25 overloads, whether or not the expression calls them. Programs of this compiler do not, and have the same values, errors and
// costs. An expression that calls a function of trackedFunctions keeps its program of kube-apiserver. The compiler compiles one expression at a time.
func NewCompiler(environments *environment.EnvSet) (admissioncel.Compiler, error) {
	return newFastCompiler(environments, celconfig.PerCallLimit)
}

func newFastCompiler(environments *environment.EnvSet, limit uint64) (c *fastCompiler, err error) {
	c = &fastCompiler{limit: limit}
	if c.bare, err = cel.NewCustomEnv(); err != nil {
		return nil, err
	}
	environments, err = environments.Extend(environment.VersionedOptions{
		IntroducedVersion: utilversion.MajorMinor(1, 0), EnvOptions: []cel.EnvOption{cel.ASTValidators(c)},
	})
	if err != nil {
		return nil, err
	}
	c.Compiler = admissioncel.NewCompiler(environments)
	return c, nil
}

// fastCompiler is the compiler of [NewCompiler].
type fastCompiler struct {
	admissioncel.Compiler

	bare  *cel.Env // without libraries, which bring the trackers
	limit uint64   // of the cost of an evaluation

	env     *cel.Env // of checked
	checked *ast.AST // the expression that is being compiled; nil until its types are checked
}

var _ cel.ASTValidator = (*fastCompiler)(nil)

// Name implements [cel.ASTValidator].
func (c *fastCompiler) Name() string { return "portcullis.checked" }

// Validate implements [cel.ASTValidator]. It keeps the checked expression, and finds no fault.
func (c *fastCompiler) Validate(env *cel.Env, _ cel.ValidatorConfig, checked *ast.AST, _ *cel.Issues) {
	c.env, c.checked = env, checked
}

// CompileCELExpression implements [admissioncel.Compiler].
func (c *fastCompiler) CompileCELExpression(
	x admissioncel.ExpressionAccessor, declared admissioncel.OptionalVariableDeclarations, mode environment.Type,
) admissioncel.CompilationResult {
	defer func() { c.env, c.checked = nil, nil }()
	result := c.Compiler.CompileCELExpression(x, declared, mode)
	if result.Error == nil && !callsTracked(c.checked) {
		if fast, err := c.program(); err == nil {
			result.Program = fast
		}
	}
	return result
}

// program returns a program without trackers of overloads, with the plan that kube-apiserver's options give to the checked expression. cel-go has no
// option that removes trackers from an environment. So the plan is taken from a program of that environment, and put into a program of the bare one, in
// place of a literal.
func (c *fastCompiler) program() (cel.Program, error) {
	planned, err := planOf(c.env, c.checked)
	if err != nil {
		return nil, err
	}
	literal := ast.NewAST(ast.NewExprFactory().NewLiteral(0, types.True), c.checked.SourceInfo())
	return c.bare.PlanProgram(literal,
		cel.CostTracking(&library.CostEstimator{}), cel.CostLimit(c.limit), cel.CostTrackerOptions(interpreter.PresenceTestHasCost(false)),
		cel.InterruptCheckFrequency(celconfig.CheckFrequency),
		cel.CustomDecorator(func(interpreter.Interpretable) (interpreter.Interpretable, error) { return planned, nil }),
	)
}

// planOf returns the plan of an expression, with all options of its environment. It plans a call of a function that does not exist, whose argument is
// the expression: the decorator of that call sees the finished plan of the argument.
func planOf(env *cel.Env, checked *ast.AST) (planned interpreter.Interpretable, err error) {
	const function = "@planned"
	call := ast.NewAST(ast.NewExprFactory().NewCall(0, function, checked.Expr()), checked.SourceInfo())
	_, err = env.PlanProgram(ast.NewCheckedAST(call, checked.TypeMap(), checked.ReferenceMap()),
		cel.InterruptCheckFrequency(celconfig.CheckFrequency),
		cel.CustomDecorator(func(i interpreter.Interpretable) (interpreter.Interpretable, error) {
			if call, ok := i.(interpreter.InterpretableCall); ok && call.Function() == function {
				planned = call.Args()[0]
			}
			return i, nil
		}))
	return planned, err
}

// trackedFunctions have overloads with a cost tracker (ext.Lists and ext.Sets of cel-go).
func trackedFunctions() []string {
	return []string{
		"slice", "flatten", "lists.range", "reverse", "distinct", "sort", "@sortByAssociatedKeys", "sets.contains", "sets.intersects", "sets.equivalent",
	}
}

// callsTracked reports whether a checked expression calls a function of trackedFunctions.
func callsTracked(checked *ast.AST) (found bool) {
	tracked := trackedFunctions()
	ast.PostOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		found = found || e.Kind() == ast.CallKind && slices.Contains(tracked, e.AsCall().FunctionName())
	}))
	return found
}
