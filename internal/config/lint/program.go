package lint

import (
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// bytesOfStep is how much text a call makes in one step.
const bytesOfStep = 64

// program is an expression that is evaluated with variables of which some are unknown.
type program struct {
	cel.Program

	root  ast.Expr
	steps int // of this evaluation
}

// program reads an expression in the environment of kube-apiserver, once; nil if it cannot be read.
func (c *constants) program(expression string) *program {
	p, known := c.programs[expression]
	if !known {
		if c.programs == nil {
			c.programs = map[string]*program{}
		}
		p = c.newProgram(expression)
		c.programs[expression] = p
	}
	return p
}

func (c *constants) newProgram(expression string) *program {
	if c.kubernetes == nil {
		env, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Env(environment.StoredExpressions)
		if err != nil {
			return nil
		}
		c.kubernetes = env
	}
	parsed, issues := c.kubernetes.Parse(expression)
	if issues.Err() != nil {
		return nil
	}
	p := &program{root: parsed.NativeRep().Expr()}
	var err error
	p.Program, err = c.kubernetes.Program(parsed, append(match.BoundCalls(c.kubernetes), cel.EvalOptions(cel.OptPartialEval, cel.OptExhaustiveEval),
		cel.CustomDecorator(p.count))...)
	if err != nil {
		return nil
	}
	return p
}

// count makes a call count its steps. A cost limit of CEL does not hold beside OptExhaustiveEval, since CEL lets the latter alone observe a program.
func (p *program) count(i interpreter.Interpretable) (interpreter.Interpretable, error) {
	if call, ok := i.(interpreter.InterpretableCall); ok {
		return &countedCall{call, p}, nil
	}
	return i, nil
}

// countedCall is a call of a program. Each iteration of a loop has one.
type countedCall struct {
	interpreter.InterpretableCall

	of *program
}

// Eval implements [interpreter.Interpretable]. A text that it makes counts by its length.
func (c *countedCall) Eval(a interpreter.Activation) ref.Val {
	v := c.InterpretableCall.Eval(a)
	c.of.steps++
	if text, ok := v.(types.String); ok {
		c.of.steps += len(text) / bytesOfStep
	}
	if c.of.steps > maxConstantCost {
		//nolint:forbidigo // CEL recovers it, and returns it from Eval.
		panic(interpreter.EvalCancelledError{Message: "cost limit", Cause: interpreter.CostLimitExceeded})
	}
	return v
}

// evaluate returns the value of the expression, or why it fails, whatever the unknown variables are; neither if that depends on them.
func (p *program) evaluate(variables cel.PartialActivation) (ref.Val, error) {
	p.steps = 0
	value, details, err := p.Eval(variables)
	switch {
	case err != nil && strings.Contains(err.Error(), "cost limit"):
		return nil, nil //nolint:nilnil // neither
	case err != nil:
		return nil, err
	case types.IsUnknown(value):
		return nil, failure(p.root, details.State())
	}
	return value, nil
}

// failure returns why an expression fails whatever the unknown variables are, given the values of its parts; nil if it may not. CEL
// calls it unknown if a part is unknown and another one fails. It fails then in any case, unless it is a logical operator.
func failure(e ast.Expr, values interpreter.EvalState) error {
	if v, ok := values.Value(e.ID()); ok {
		if err, failed := v.(*types.Err); failed {
			return err
		}
		if !types.IsUnknown(v) {
			return nil
		}
	}
	switch e.Kind() {
	case ast.SelectKind:
		return failure(e.AsSelect().Operand(), values)
	case ast.ListKind:
		return firstFailure(e.AsList().Elements(), values)
	case ast.CallKind:
		return callFailure(e.AsCall(), values)
	default:
		return nil
	}
}

func callFailure(c ast.CallExpr, values interpreter.EvalState) error {
	args := c.Args()
	is := func(i int, want types.Bool) bool {
		v, ok := values.Value(args[i].ID())
		return ok && v == want
	}
	switch c.FunctionName() {
	case operators.LogicalAnd, operators.LogicalOr:
		neutral := types.Bool(c.FunctionName() == operators.LogicalAnd) // with which the other decides
		first, second := failure(args[0], values), failure(args[1], values)
		if first != nil && (second != nil || is(1, neutral)) {
			return first
		}
		if is(0, neutral) {
			return second
		}
		return nil
	case operators.Conditional:
		if err := failure(args[0], values); err != nil {
			return err
		}
		yes, no := failure(args[1], values), failure(args[2], values)
		switch {
		case is(0, types.True), yes == nil:
			return yes
		case is(0, types.False), no == nil:
			return no
		}
		return yes
	case operators.NotStrictlyFalse, operators.OptSelect, operators.OptIndex:
		return nil
	}
	if c.IsMemberFunction() {
		args = append([]ast.Expr{c.Target()}, args...)
	}
	return firstFailure(args, values)
}

// firstFailure is the failure of parts of which each has to have a value.
func firstFailure(parts []ast.Expr, values interpreter.EvalState) error {
	for _, part := range parts {
		if err := failure(part, values); err != nil {
			return err
		}
	}
	return nil
}
