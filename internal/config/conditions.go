package config

import (
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

// maxHookConditions is how many matchConditions Kubernetes lets one hook have.
const maxHookConditions = 64

// conditions compiles the matchConditions of an object and reports their problems, as validateMatchConditions of
// k8s.io/kubernetes/pkg/apis/admissionregistration/validation does. That function compiles them too, but keeps no programs:
// it checks everything else. Conditions over the limit of cost are not compiled.
func (d *document) conditions(o *Object) (ok bool) {
	cost, written := o.Cost(), o.Webhooks()
	if over := cost.Over(DocumentLimit()); over != "" {
		d.fault(CodeLimit, "", "the document has "+over)
		return false
	}
	if d.budget != nil && !d.budget.admit(cost) {
		d.budget.refused++
		d.fault(CodeLimit, "", "all documents together have "+d.budget.Err().Error()+": remove some")
		return false
	}
	switch {
	case o.Short != nil:
		return !d.late() && d.compileShort(o) && !d.late()
	case o.IsPolicy():
		return !d.late() && d.compilePolicy(o) && !d.late()
	}
	if cost[Conditions] == 0 {
		return true
	}
	o.Conditions, ok = make([][]*match.Expression, len(written)), true
	for i, w := range written {
		path := field.NewPath("webhooks").Index(i).Child("matchConditions")
		compiled, errs := d.compileConditions(w.MatchConditions, path)
		for _, err := range errs {
			d.invalid(err)
		}
		o.Conditions[i], ok = compiled, ok && len(errs) == 0
	}
	return !d.late() && ok
}

// late reports, and says, that compiling has taken all the time of the budget.
func (d *document) late() bool {
	if d.budget == nil || !d.budget.late() {
		return false
	}
	d.budget.refused++
	d.fault(CodeLimit, "", "the documents have "+d.budget.Err().Error())
	return true
}

// compileConditions is validateMatchConditions for one hook.
func (d *document) compileConditions(all []admissionregistrationv1.MatchCondition, path *field.Path) (compiled []*match.Expression, errs field.ErrorList) {
	if len(all) > maxHookConditions {
		errs = append(errs, field.TooMany(path, len(all), maxHookConditions))
	}
	names := sets.New[string]()
	for i, c := range all {
		at := path.Index(i)
		x, expressionErrs := d.compileExpression(strings.TrimSpace(c.Expression), at.Child("expression"))
		compiled, errs = append(compiled, x), append(errs, expressionErrs...)
		if c.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
			continue
		}
		for _, message := range validation.IsQualifiedName(c.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), c.Name, message))
		}
		if names.Has(c.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		names.Insert(c.Name)
	}
	return compiled, errs
}

// compileExpression is validateMatchConditionsExpression. Expressions have a limit of their own; past the time of the budget
// none is compiled.
func (d *document) compileExpression(expression string, path *field.Path) (*match.Expression, field.ErrorList) {
	switch {
	case expression == "":
		return nil, field.ErrorList{field.Required(path, "")}
	case len(expression) > MaxExpressionBytes:
		message := fmt.Sprintf("the expression has %s bytes, and at most %s are compiled", thousands(len(expression)), thousands(MaxExpressionBytes))
		return nil, field.ErrorList{field.Forbidden(path, message)}
	case d.budget != nil && d.budget.late():
		return nil, nil
	}
	begun := time.Now()
	x, fresh := d.expressions.Compile(expression)
	if fresh && d.budget != nil {
		d.budget.spend(time.Since(begun))
	}
	if err := x.Err(); err != nil {
		return x, field.ErrorList{expressionError(err, expression, path)}
	}
	return x, nil
}

// invalid reports an error of validation. The error of an expression may end with the operator that CEL has.
func (d *document) invalid(err *field.Error) {
	message := err.ErrorBody()
	if expression, ok := err.BadValue.(string); ok {
		message += suggest.Operator(expression, message)
	}
	d.fault(CodeInvalid, err.Field, message)
}

// expressionError is convertCELErrorToValidationError.
func expressionError(err *apiservercel.Error, expression string, path *field.Path) *field.Error {
	switch err.Type {
	case apiservercel.ErrorTypeRequired:
		return field.Required(path, err.Detail)
	case apiservercel.ErrorTypeInvalid:
		return field.Invalid(path, expression, err.Detail)
	case apiservercel.ErrorTypeInternal:
	}
	return field.InternalError(path, err)
}
