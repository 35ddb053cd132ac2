package match

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/evaluation"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// conditions are the matchConditions of one hook, compiled. They are immutable.
type conditions struct {
	written  []admissionregistrationv1.MatchCondition
	compiled []cel.CompilationResult
	policy   admissionregistrationv1.FailurePolicyType
	metrics  evaluation.Metrics
	errs     []error
	// requestOnly: none of them reads an object, so that none need be decoded.
	requestOnly bool
	entry       []string // Hook.EntryConditions
}

// expressionsFor are the compiled matchConditions of the webhook at position i of o: those that came with it, if they did.
func (c *compiler) expressionsFor(o Object, i int, w *webhook) []*Expression {
	if i < len(o.Conditions) && len(o.Conditions[i]) == len(w.MatchConditions) {
		return o.Conditions[i]
	}
	if c.expressions == nil {
		c.expressions = c.newExpressions()
	}
	compiled := make([]*Expression, len(w.MatchConditions))
	for j, condition := range w.MatchConditions {
		compiled[j], _ = c.expressions.Compile(condition.Expression)
	}
	return compiled
}

// newConditions are the matchConditions of a webhook, as GetCompiledMatcher of k8s.io/apiserver's WebhookAccessor makes them. A condition that does
// not compile stays, and fails whenever it is evaluated.
func newConditions(compiled []*Expression, h *Hook, w *webhook) *conditions {
	c := &conditions{
		written: w.MatchConditions, compiled: make([]cel.CompilationResult, len(compiled)), policy: h.FailurePolicy,
		metrics: evaluation.MetricsOf(w.Name, w.stage), requestOnly: true, entry: entryConditions(compiled),
	}
	for i, x := range compiled {
		condition := &w.MatchConditions[i]
		c.compiled[i] = x.as(&matchconditions.MatchCondition{Name: condition.Name, Expression: condition.Expression})
		if err := x.Err(); err != nil {
			c.errs = append(c.errs, err)
		}
		c.requestOnly = c.requestOnly && x.requestOnly
	}
	return c
}

// costKey is the key of the units of CEL that are left, in a context.
type costKey struct{}

// WithCost returns a context in which matchConditions cost at most so many units of CEL together: past that, a hook with conditions fails to match. It is
// for matching without a deadline, in one goroutine. One expression may exceed it, by a million units at most.
func WithCost(ctx context.Context, units int64) context.Context {
	return context.WithValue(ctx, costKey{}, &units)
}

// errCost: the units of WithCost are spent.
var errCost = errors.New("the conditions cost too much together")

// matchConditions evaluates the conditions of the hook on the request as the hook sees it: a false one skips the hook,
// whatever the others say; else a failed one refuses the review with 403 or, with failurePolicy Ignore and for a request that
// always fails open, skips the hook (SEMANTICS C18).
func (h *Hook) matchConditions(ctx context.Context, a *Attributes, as *conversion.ResourceKind) Decision {
	if h.conditions == nil {
		return Decision{Match: true, As: as}
	}
	input, _, err := a.versioned(ctx, a.seenKind(as), h.conditions.requestOnly)
	if err != nil {
		return Decision{Err: cmp.Or(memoryStatus(err), apierrors.NewInternalError(err))}
	}
	var excluding *admissionregistrationv1.MatchCondition
	a.evaluator.Evaluate(ctx, func(ctx context.Context) {
		h.conditions.metrics.Evaluate(ctx, input.GetOperation(), func() { excluding, err = h.conditions.evaluate(ctx, a, input) })
	})
	switch {
	case err != nil && (a.failsOpen || h.conditions.policy == admissionregistrationv1.Ignore):
		return Decision{Skip: SkipConditions, As: as}
	case err != nil:
		return Decision{Err: apierrors.NewForbidden(a.requested.Resource.GroupResource(), a.req.GetName(), err)}
	case excluding != nil:
		return Decision{Skip: SkipConditions, As: as, condition: excluding.Name}
	}
	return Decision{Match: true, As: as}
}

// evaluate evaluates the conditions, as Match of kube-apiserver's matchconditions does: but the variable request is made once for a review. It returns the
// first false condition. Without one, err has the errors of conditions that failed; it also ends an evaluation whose budget is spent.
func (c *conditions) evaluate(
	ctx context.Context, a *Attributes, input *admission.VersionedAttributes,
) (excluding *admissionregistrationv1.MatchCondition, err error) {
	budget := int64(celconfig.RuntimeCELCostBudgetMatchConditions)
	if left, ok := ctx.Value(costKey{}).(*int64); ok {
		if *left <= 0 {
			return nil, errCost
		}
		budget = min(budget, *left)
		whole := budget
		defer func() { *left -= whole - budget }()
	}
	v := &variables{Attributes: a, input: input, Interrupt: evaluation.NewInterrupt(ctx)}
	var errs []error
	for i := range c.compiled {
		value, failed, err := v.evaluate(&c.compiled[i], &budget)
		switch {
		case err != nil:
			return nil, err
		case excluding != nil:
		case failed != nil:
			errs = append(errs, failed)
			c.metrics.Fail(ctx, input.GetOperation())
		case value == types.False:
			excluding = &c.written[i]
		}
	}
	if excluding != nil {
		return excluding, nil
	}
	return nil, utilerrors.NewAggregate(errs)
}

// variables are the variables of the conditions of one hook. They belong to one goroutine.
type variables struct {
	*Attributes
	evaluation.Interrupt

	input *admission.VersionedAttributes
}

// evaluate evaluates one condition, and takes its cost from the budget: all of it, if the condition costs more. failed is the error of this condition, err
// ends the evaluation of all that follow.
func (v *variables) evaluate(x *cel.CompilationResult, budget *int64) (value ref.Val, failed, err error) {
	if err := evaluation.Compiled(x); err != nil {
		return nil, err, nil
	}
	v.Yield()
	value, details, err := x.Program.Eval(v)
	cost := evaluation.CostOf(details)
	if cost == evaluation.UnknownCost {
		*budget = 0
		return nil, nil, evaluation.ErrUnknownCost(x)
	}
	if *budget -= cost; *budget < 0 {
		*budget = 0
		return nil, nil, evaluation.ErrOverBudget()
	}
	if err != nil {
		return nil, evaluation.Failed(x, err), nil
	}
	return value, nil, nil
}

var _ interpreter.Activation = (*variables)(nil)

// ResolveName implements [interpreter.Activation].
func (v *variables) ResolveName(name string) (any, bool) {
	switch name {
	case cel.ObjectVarName:
		return Content(v.input.VersionedObject), true
	case cel.OldObjectVarName:
		return Content(v.input.VersionedOldObject), true
	case cel.RequestVarName:
		request, _, err := v.RequestVariable(v.requested.Resource, v.input.VersionedKind)
		if err != nil {
			return types.WrapErr(err), true
		}
		return request, true
	case cel.NamespaceVarName:
		return nil, true
	case cel.AuthorizerVarName, cel.RequestResourceAuthorizerVarName:
		authorizer := v.cluster.Authorizer()
		switch {
		case authorizer == nil:
			return nil, false
		case name == cel.AuthorizerVarName:
			return library.NewAuthorizerVal(v.input.GetUserInfo(), authorizer), true
		}
		return library.NewResourceAuthorizerVal(v.input.GetUserInfo(), authorizer, v.input), true
	case evaluation.InterruptedVarName:
		return v.Value(), true
	}
	return nil, false
}

// Parent implements [interpreter.Activation].
func (v *variables) Parent() interpreter.Activation { return nil }

// versioned is Versioned in a version of the kind of the objects; without them if only the request is read.
func (a *Attributes) versioned(
	ctx context.Context, kind schema.GroupVersionKind, requestOnly bool,
) (input *admission.VersionedAttributes, longest conversion.Longest, err error) {
	attributes, err := a.record.get(a.request)
	if err != nil {
		return nil, longest, err
	}
	input = &admission.VersionedAttributes{Attributes: attributes, VersionedKind: kind}
	if requestOnly {
		return input, longest, nil
	}
	if input.VersionedObject, longest, err = a.object.decodedIn(ctx, a.request, kind); err != nil {
		return nil, longest, err
	}
	old, longestOld, err := a.old.decodedIn(ctx, a.request, kind)
	if err != nil {
		return nil, longest, err
	}
	input.VersionedOldObject = old
	return input, longest.Or(longestOld), nil
}

// record is a request as expressions see it, without its objects, made once and only if a hook has conditions or is a policy.
type record struct {
	once       sync.Once
	attributes admission.Attributes
	err        error

	mu       sync.Mutex
	user     map[string]any    // of all requests; nil before the first
	requests []requestVariable // one for each version that hooks and policies take
}

func (c *record) get(r *request) (admission.Attributes, error) {
	c.once.Do(func() { c.attributes, c.err = newRecord(r) })
	return c.attributes, c.err
}

func newRecord(r *request) (admission.Attributes, error) {
	var options runtime.Object
	if o := newObject(r.req.GetOptions()); o != nil {
		var err error
		if options, err = o.whole(r.memory); err != nil {
			return nil, err
		}
	}
	if err := r.memory.Grow(userExtent(r.req.GetUserInfo())); err != nil {
		return nil, &memoryError{err}
	}
	return admission.NewAttributesRecord(nil, nil, r.requested.Kind, r.req.GetNamespace(), r.req.GetName(),
		r.requested.Resource, r.requested.Subresource, admission.Operation(r.req.GetOperation()), options, r.req.GetDryRun(),
		userInfo(r.req.GetUserInfo())), nil
}

// decoded is the object as CEL sees it, given it in some version. It is booked as long as the object is in use.
func (o *object) decoded(m Memory, raw []byte) (*decodedObject, conversion.Longest, error) {
	extent := conversion.ExtentOf(raw)
	if err := o.book(m, extent.Untyped()+memberBytes*extent.Values); err != nil {
		return nil, conversion.Longest{}, err
	}
	return decode(raw)
}

// whole is the object as k8s.io/apimachinery has it. It is booked as long as the object is in use.
func (o *object) whole(m Memory) (*unstructured.Unstructured, error) {
	if err := o.book(m, conversion.ExtentOf(o.raw).Untyped()); err != nil {
		return nil, err
	}
	content, _, err := contentOf(o.raw)
	return &unstructured.Unstructured{Object: content}, err
}

func userInfo(u *admissionv1.UserInfo) user.Info {
	info := &user.DefaultInfo{Name: u.GetUsername(), UID: u.GetUid(), Groups: u.GetGroups()}
	if len(u.GetExtra()) > 0 {
		info.Extra = make(map[string][]string, len(u.GetExtra()))
	}
	for k, v := range u.GetExtra() {
		info.Extra[k] = v.GetItems()
	}
	return info
}

func conditionPolicy(p admissionregistrationv1.FailurePolicyType) string {
	if p == admissionregistrationv1.Ignore {
		return "failurePolicy Ignore leaves the hook out of every review that reaches it"
	}
	return "failurePolicy Fail refuses every review that reaches it with 403"
}
