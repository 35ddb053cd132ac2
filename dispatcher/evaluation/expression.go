package evaluation

import (
	"fmt"
	"math"

	celgo "github.com/google/cel-go/cel"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// The errors of expressions have the words of Evaluate of kube-apiserver's activation (k8s.io/apiserver/pkg/admission/plugin/cel).

// Compiled returns the error of an expression that has no program; nil for others. It fails that expression alone.
func Compiled(x *cel.CompilationResult) error {
	switch {
	case x.Error != nil:
		return &apiservercel.Error{
			Type: apiservercel.ErrorTypeInvalid, Detail: fmt.Sprintf("compilation error: %v", x.Error), Cause: x.Error,
		}
	case x.Program == nil:
		return &apiservercel.Error{Type: apiservercel.ErrorTypeInternal, Detail: "unexpected internal error compiling expression"}
	}
	return nil
}

// Failed returns the error of an expression whose program returned err. It fails that expression alone.
func Failed(x *cel.CompilationResult, err error) error {
	return &apiservercel.Error{
		Type: apiservercel.ErrorTypeInvalid, Detail: fmt.Sprintf("expression '%v' resulted in error: %v", x.ExpressionAccessor.GetExpression(), err),
	}
}

// UnknownCost is the cost of an evaluation that could not be counted.
const UnknownCost = -1

// CostOf is the cost of an evaluation, in units of CEL; UnknownCost if it was not counted.
func CostOf(details *celgo.EvalDetails) int64 {
	if actual := details.ActualCost(); actual != nil {
		return int64(min(*actual, math.MaxInt64))
	}
	return UnknownCost
}

// ErrUnknownCost returns the error for an expression of UnknownCost. It ends the evaluation of all that follow.
func ErrUnknownCost(x *cel.CompilationResult) error {
	return &apiservercel.Error{
		Type:   apiservercel.ErrorTypeInvalid,
		Detail: fmt.Sprintf("runtime cost could not be calculated for expression: %v, no further expression will be run", x.ExpressionAccessor.GetExpression()),
		Cause:  apiservercel.ErrOutOfBudget,
	}
}

// ErrOverBudget returns the error for an expression that costs more than is left of a budget. It ends the evaluation of all that follow.
func ErrOverBudget() error {
	return &apiservercel.Error{
		Type: apiservercel.ErrorTypeInvalid, Detail: "validation failed due to running out of cost budget, no further validation rules will be run",
		Cause: apiservercel.ErrOutOfBudget,
	}
}
