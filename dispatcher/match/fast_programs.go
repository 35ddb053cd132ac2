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

// NewCompiler returns kube-apiserver's compiler, with faster programs: it is there for speed. The environments have the bounds of [BoundCalls]. Each
// evaluation of a program of kube-apiserver fills a map with the cost trackers of 25 overloads, whether or not the expression calls them. Programs of this
// compiler do not, and have the same values, errors and costs. An expression that calls a function of trackedFunctions keeps its program of
// kube-apiserver. The compiler compiles one expression at a time.
func NewCompiler(environments *environment.EnvSet) (*FastCompiler, error) {
	return newFastCompiler(environments, celconfig.PerCallLimit)
}

func newFastCompiler(environments *environment.EnvSet, limit uint64) (c *FastCompiler, err error) {
	c = &FastCompiler{limit: limit}
	if c.bare, err = cel.NewCustomEnv(); err != nil {
		return nil, err
	}
	// Optional types have an option of programs that is to be had in no other way.
	if c.optional, err = cel.NewCustomEnv(cel.OptionalTypes()); err != nil {
		return nil, err
	}
	environments, err = environments.Extend(environment.VersionedOptions{
		IntroducedVersion: utilversion.MajorMinor(1, 0), EnvOptions: []cel.EnvOption{cel.ASTValidators((*checker)(c))},
	})
	if err != nil {
		return nil, err
	}
	c.original = admissioncel.NewCompiler(environments)
	return c, nil
}

// FastCompiler is the compiler of [NewCompiler].
type FastCompiler struct {
	original admissioncel.Compiler
	bare     *cel.Env // without libraries, which bring the trackers
	optional *cel.Env // with optional types alone
	limit    uint64   // of the cost of an evaluation

	env     *cel.Env // of checked
	checked *ast.AST // the expression that is being compiled; nil until its types are checked
}

var _ admissioncel.Compiler = (*FastCompiler)(nil)

// checker keeps the checked expression of a compiler.
type checker FastCompiler

var _ cel.ASTValidator = (*checker)(nil)

// Name implements [cel.ASTValidator].
func (c *checker) Name() string { return "portcullis.checked" }

// Validate implements [cel.ASTValidator]. It keeps the checked expression, and finds no fault.
func (c *checker) Validate(env *cel.Env, _ cel.ValidatorConfig, checked *ast.AST, _ *cel.Issues) {
	c.env, c.checked = env, checked
}

// CompileCELExpression implements [admissioncel.Compiler].
func (c *FastCompiler) CompileCELExpression(
	x admissioncel.ExpressionAccessor, declared admissioncel.OptionalVariableDeclarations, mode environment.Type,
) admissioncel.CompilationResult {
	result, _ := c.compile(x, declared, mode)
	return result
}

// compile also returns the environment of the plan; nil if the program is kube-apiserver's.
func (c *FastCompiler) compile(
	x admissioncel.ExpressionAccessor, declared admissioncel.OptionalVariableDeclarations, mode environment.Type,
) (result admissioncel.CompilationResult, env *cel.Env) {
	defer func() { c.env = nil }()
	if result = c.original.CompileCELExpression(x, declared, mode); result.Error != nil {
		return result, nil
	}
	called := callsOf(c.checked)
	if slices.ContainsFunc(trackedFunctions(), func(f string) bool { return called[f] }) {
		return result, nil
	}
	env, err := c.environmentOf(called)
	if err != nil {
		return result, nil
	}
	fast, err := c.program(env,
		cel.CostTracking(&library.CostEstimator{}), cel.CostLimit(c.limit), cel.CostTrackerOptions(interpreter.PresenceTestHasCost(false)))
	if err != nil {
		return result, nil
	}
	result.Program = fast
	return result, env
}

// Uncounted is an expression whose cost is not counted.
type Uncounted struct {
	// Program has the values and errors of the program that counts, no limit, and no details.
	Program cel.Program
	// Expression is the checked expression.
	Expression ast.Expr
}

// CompileUncounted is CompileCELExpression that makes a program without a count of costs, too; nil if there is none. An expression that calls a function of
// trackedFunctions has none: its trackers panic on arguments that are errors.
func (c *FastCompiler) CompileUncounted(
	x admissioncel.ExpressionAccessor, declared admissioncel.OptionalVariableDeclarations, mode environment.Type,
) (admissioncel.CompilationResult, *Uncounted) {
	result, env := c.compile(x, declared, mode)
	if env == nil {
		return result, nil
	}
	program, err := c.program(env)
	if err != nil {
		return result, nil
	}
	return result, &Uncounted{program, c.checked.Expr()}
}

// environmentOf returns the environment of the checked expression with the functions that it calls alone, and without options of programs. A plan binds
// each function of its environment, and cel-go keeps the bindings with a program that counts costs: 50 kB for the functions of kube-apiserver. An
// environment whose options count costs has plans that observe each step, and cel-go has no option that undoes that.
func (c *FastCompiler) environmentOf(called map[string]bool) (*cel.Env, error) {
	options := []cel.EnvOption{cel.CustomTypeAdapter(c.env.CELTypeAdapter()), cel.CustomTypeProvider(c.env.CELTypeProvider())}
	for name, f := range c.env.Functions() {
		if called[name] {
			options = append(options, cel.FunctionDecls(f))
		}
	}
	return c.optional.Extend(options...)
}

// program returns a program of the checked expression without trackers of overloads. cel-go has no option that removes trackers from an environment. So
// the plan is taken from a program of env, and put into a program of the bare environment, in place of a literal.
func (c *FastCompiler) program(env *cel.Env, options ...cel.ProgramOption) (cel.Program, error) {
	planned, err := planOf(env, c.checked, append(optimizations(env), options...)...)
	if err != nil {
		return nil, err
	}
	literal := ast.NewAST(ast.NewExprFactory().NewLiteral(0, types.True), c.checked.SourceInfo())
	return c.bare.PlanProgram(literal, append(options,
		cel.InterruptCheckFrequency(celconfig.CheckFrequency),
		cel.CustomDecorator(func(interpreter.Interpretable) (interpreter.Interpretable, error) { return planned, nil }),
	)...)
}

// optimizations are the options of programs of kube-apiserver's environments with [BoundCalls], but for the count of costs and for the option of
// optional types.
func optimizations(env *cel.Env) []cel.ProgramOption {
	return append([]cel.ProgramOption{
		cel.EvalOptions(cel.OptOptimize), cel.OptimizeRegex(library.FindRegexOptimization, library.FindAllRegexOptimization),
	}, BoundCalls(env)...)
}

// planOf returns the plan of an expression. It plans a call of a function that does not exist, whose argument is the expression: the decorator of that
// call sees the finished plan of the argument.
func planOf(env *cel.Env, checked *ast.AST, options ...cel.ProgramOption) (planned interpreter.Interpretable, err error) {
	const function = "@planned"
	call := ast.NewAST(ast.NewExprFactory().NewCall(0, function, checked.Expr()), checked.SourceInfo())
	_, err = env.PlanProgram(ast.NewCheckedAST(call, checked.TypeMap(), checked.ReferenceMap()), append(options,
		cel.InterruptCheckFrequency(celconfig.CheckFrequency),
		cel.CustomDecorator(func(i interpreter.Interpretable) (interpreter.Interpretable, error) {
			if call, ok := i.(interpreter.InterpretableCall); ok && call.Function() == function {
				planned = call.Args()[0]
			}
			return i, nil
		}))...)
	return planned, err
}

// trackedFunctions have overloads with a cost tracker (ext.Lists and ext.Sets of cel-go).
func trackedFunctions() []string {
	return []string{
		"slice", "flatten", "lists.range", "reverse", "distinct", "sort", "@sortByAssociatedKeys", "sets.contains", "sets.intersects", "sets.equivalent",
	}
}

// callsOf are the names of the functions that a checked expression calls.
func callsOf(checked *ast.AST) map[string]bool {
	called := map[string]bool{}
	ast.PostOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.CallKind {
			called[e.AsCall().FunctionName()] = true
		}
	}))
	return called
}
