package policy

import (
	"context"
	"fmt"
	"math"

	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// input is a request in one version, as expressions see it. It belongs to one goroutine. All policies of a review that take the version share it.
type input struct {
	versioned                     *admission.VersionedAttributes
	seen                          schema.GroupVersionResource
	object, oldObject             any
	authorizer, requestAuthorizer any // nil without an authorizer
	requests                      map[schema.GroupVersionResource]any
}

// newInput prepares a request in the version that a policy takes.
func newInput(ctx context.Context, a *match.Attributes, as *conversion.ResourceKind) (*input, error) {
	versioned, err := a.Versioned(ctx, as)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller adds the words of kube-apiserver
	}
	in := &input{
		versioned: versioned, seen: a.Seen(as).Resource, object: contentOf(versioned.VersionedObject), oldObject: contentOf(versioned.VersionedOldObject),
		requests: map[schema.GroupVersionResource]any{},
	}
	if authorizer := a.Cluster().Authorizer(); authorizer != nil {
		in.authorizer = library.NewAuthorizerVal(versioned.GetUserInfo(), authorizer)
		in.requestAuthorizer = library.NewResourceAuthorizerVal(versioned.GetUserInfo(), authorizer, versioned)
	}
	return in, nil
}

// contentOf is an object as CEL takes it; nil without one.
func contentOf(o runtime.Object) any {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.Object
	}
	return nil
}

// name is the name of the object, or the beginning of a name that is yet to be generated; empty if neither is known.
func (in *input) name() string {
	if u, ok := in.versioned.VersionedObject.(*unstructured.Unstructured); ok && u.GetName() == "" {
		return u.GetGenerateName()
	} else if ok {
		return u.GetName()
	}
	return ""
}

// request is the variable request, with a resource: in the version that a policy takes or, for matchConditions, in the version that the client asked for.
func (in *input) request(resource schema.GroupVersionResource) (any, error) {
	if known, ok := in.requests[resource]; ok {
		return known, nil
	}
	made, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cel.CreateAdmissionRequest(
		in.versioned.Attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(in.versioned.VersionedKind)))
	if err != nil {
		return nil, fmt.Errorf("failed to prepare request variable for evaluation: %w", err)
	}
	in.requests[resource] = made
	return made, nil
}

// activation has the variables of one evaluation: of matchConditions, validations, messages or audit annotations.
type activation struct {
	*input

	requestValue      any
	params, namespace any
	variables         any
	composed          cel.CompositionContext // nil without variables
	remaining         int64                  // of the budget
}

// activate begins an evaluation.
func (d *Definition) activate(ctx context.Context, in *input, resource schema.GroupVersionResource, budget int64) (*activation, error) {
	request, err := in.request(resource)
	if err != nil {
		return nil, err
	}
	a := &activation{input: in, requestValue: request, remaining: budget}
	if d.composed != nil {
		a.composed = d.composed.CreateContext(ctx)
		a.variables = a.composed.Variables(a)
	}
	return a, nil
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
		return a.requestValue, true
	case cel.NamespaceVarName:
		return a.namespace, true
	case cel.AuthorizerVarName:
		return a.authorizer, a.authorizer != nil
	case cel.RequestResourceAuthorizerVarName:
		return a.requestAuthorizer, a.requestAuthorizer != nil
	case cel.VariableVarName:
		return a.variables, true
	}
	return nil, false
}

// Parent implements [interpreter.Activation].
func (a *activation) Parent() interpreter.Activation { return nil }

// evaluate evaluates one expression, as Evaluate of kube-apiserver's activation does. failed is the error of the expression; err ends the evaluation of
// all that follow: the budget is spent.
func (a *activation) evaluate(ctx context.Context, x *cel.CompilationResult) (value ref.Val, failed, err error) {
	switch {
	case x.Error != nil:
		return nil, &apiservercel.Error{
			Type: apiservercel.ErrorTypeInvalid, Detail: fmt.Sprintf("compilation error: %v", x.Error), Cause: x.Error,
		}, nil
	case x.Program == nil:
		return nil, &apiservercel.Error{Type: apiservercel.ErrorTypeInternal, Detail: "unexpected internal error compiling expression"}, nil
	}
	if a.composed != nil {
		ctx = a.composed
	}
	value, details, failed := x.Program.ContextEval(ctx, a)
	if a.composed != nil { // variables are evaluated when they are read
		if err := a.spend(ctx, a.composed.GetAndResetCost()); err != nil {
			return nil, nil, err
		}
	}
	if details == nil {
		return nil, nil, &apiservercel.Error{
			Type:   apiservercel.ErrorTypeInternal,
			Detail: fmt.Sprintf("runtime cost could not be calculated for expression: %v, no further expression will be run", x.ExpressionAccessor.GetExpression()),
		}
	}
	cost := details.ActualCost()
	if cost == nil {
		return nil, nil, &apiservercel.Error{
			Type:   apiservercel.ErrorTypeInvalid,
			Detail: fmt.Sprintf("runtime cost could not be calculated for expression: %v, no further expression will be run", x.ExpressionAccessor.GetExpression()),
			Cause:  apiservercel.ErrOutOfBudget,
		}
	}
	if err := a.spend(ctx, int64(min(*cost, math.MaxInt64))); err != nil {
		return nil, nil, err
	}
	if failed != nil {
		return nil, &apiservercel.Error{
			Type: apiservercel.ErrorTypeInvalid, Detail: fmt.Sprintf("expression '%v' resulted in error: %v", x.ExpressionAccessor.GetExpression(), failed),
		}, nil
	}
	return value, nil, nil
}

func (a *activation) spend(ctx context.Context, cost int64) error {
	if cost > a.remaining {
		return &apiservercel.Error{
			Type: apiservercel.ErrorTypeInvalid, Detail: "validation failed due to running out of cost budget, no further validation rules will be run",
			Cause: apiservercel.ErrOutOfBudget,
		}
	}
	a.remaining -= cost
	return match.SpendCost(ctx, cost) //nolint:wrapcheck // it has all words
}
