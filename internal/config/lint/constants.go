package lint

import (
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// maxConstantCost bounds the evaluation of an expression, in units of CEL.
const maxConstantCost = 1000

// constants finds expressions that are false whatever the request.
type constants struct {
	env        *cel.Env // nil until needed
	kubernetes *cel.Env // with the functions of kube-apiserver; nil until needed
	programs   map[string]*program
}

// isFalse evaluates an expression whose variables are all unknown: if it is false then, it is always false. An expression
// that needs more than the functions of CEL itself counts as unknown.
func (c *constants) isFalse(expression string) bool {
	if !mayBeConstant(expression) {
		return false
	}
	if c.env == nil {
		env, err := cel.NewEnv()
		if err != nil {
			return false
		}
		c.env = env
	}
	parsed, issues := c.env.Parse(expression)
	if issues.Err() != nil {
		return false
	}
	program, err := c.env.Program(parsed, append(match.BoundCalls(c.env), cel.EvalOptions(cel.OptPartialEval), cel.CostLimit(maxConstantCost))...)
	if err != nil {
		return false
	}
	unknown, err := cel.PartialVars(map[string]any{}, variables()...)
	if err != nil {
		return false
	}
	value, _, err := program.Eval(unknown)
	return err == nil && value == types.False
}

// mayBeConstant leaves out expressions that are hardly ever constant: reading it costs as much as half of compiling it.
func mayBeConstant(expression string) bool {
	return strings.Contains(expression, "false") || !strings.Contains(expression, "request") && !strings.Contains(expression, "bject")
}

// variables are the variables of matchConditions.
func variables() []*cel.AttributePatternType {
	return []*cel.AttributePatternType{
		cel.AttributePattern("object"), cel.AttributePattern("oldObject"), cel.AttributePattern("request"), cel.AttributePattern("authorizer"),
	}
}
