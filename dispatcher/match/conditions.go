package match

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	kubeadmissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/evaluation"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// conditions are the matchConditions of one hook, compiled. They are immutable.
type conditions struct {
	written []admissionregistrationv1.MatchCondition
	policy  admissionregistrationv1.FailurePolicyType
	matcher matchconditions.Matcher
	errs    []error
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
	c := &conditions{written: w.MatchConditions, policy: h.FailurePolicy, requestOnly: true, entry: entryConditions(compiled)}
	results := make([]cel.CompilationResult, len(compiled))
	for i, x := range compiled {
		condition := &w.MatchConditions[i]
		results[i] = x.as(&matchconditions.MatchCondition{Name: condition.Name, Expression: condition.Expression})
		if p := results[i].Program; p != nil {
			results[i].Program = evaluation.Interruptible(p)
		}
		if err := x.Err(); err != nil {
			c.errs = append(c.errs, err)
		}
		c.requestOnly = c.requestOnly && x.requestOnly
	}
	matcherType := "validating"
	if w.stage != admissionv1.Stage_STAGE_VALIDATE {
		matcherType = "admit"
	}
	c.matcher = matchconditions.NewMatcher(limited{cel.NewCondition(results)}, &c.policy, "webhook", matcherType, metered.name(w.Name))
	return c
}

// maxMeteredNames bounds the names of hooks whose conditions have metrics, in the life of the process: the code of kube-apiserver that evaluates the
// conditions keeps the series of each name for ever, 8 kB at most.
const maxMeteredNames = 2000

// metered are the names that have metrics.
var metered meteredNames //nolint:gochecknoglobals // as the metrics of k8s.io/apiserver are

type meteredNames struct {
	mu    sync.Mutex
	known map[string]bool
}

// name is the name of a hook in metrics.
func (m *meteredNames) name(hook string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.known[hook]:
	case len(m.known) == maxMeteredNames:
		return "(other)"
	case m.known == nil:
		m.known = map[string]bool{hook: true}
	default:
		m.known[hook] = true
	}
	return hook
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

// limited evaluates conditions within WithCost.
type limited struct{ cel.ConditionEvaluator }

// ForInput implements [cel.ConditionEvaluator].
//
//nolint:revive // The interface sets its arguments.
func (c limited) ForInput(ctx context.Context, a *admission.VersionedAttributes, r *kubeadmissionv1.AdmissionRequest, o cel.OptionalVariableBindings,
	namespace *corev1.Namespace, budget int64,
) ([]cel.EvaluationResult, int64, error) {
	left, ok := ctx.Value(costKey{}).(*int64)
	if !ok {
		return c.ConditionEvaluator.ForInput(ctx, a, r, o, namespace, budget)
	}
	budget = min(budget, *left)
	if budget <= 0 {
		return nil, -1, errCost
	}
	results, remaining, err := c.ConditionEvaluator.ForInput(ctx, a, r, o, namespace, budget)
	*left -= budget - max(remaining, 0)
	return results, remaining, err
}

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
	var result matchconditions.MatchResult
	a.evaluator.Evaluate(ctx, func(ctx context.Context) {
		result = h.conditions.matcher.Match(ctx, input, nil, a.cluster.Authorizer())
	})
	switch {
	case result.Error != nil && a.failsOpen:
		return Decision{Skip: SkipConditions, As: as}
	case result.Error != nil:
		return Decision{Err: apierrors.NewForbidden(a.requested.Resource.GroupResource(), a.req.GetName(), result.Error)}
	case !result.Matches:
		return Decision{Skip: SkipConditions, As: as, condition: result.FailedConditionName}
	}
	return Decision{Match: true, As: as}
}

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

// record is a request as conditions see it, without its objects, made once and only if a hook has conditions.
type record struct {
	once       sync.Once
	attributes admission.Attributes
	err        error
}

func (c *record) get(r *request) (admission.Attributes, error) {
	c.once.Do(func() { c.attributes, c.err = newRecord(r) })
	return c.attributes, c.err
}

func newRecord(r *request) (admission.Attributes, error) {
	var options runtime.Object
	if o := newObject(r.req.GetOptions()); o != nil {
		var err error
		if options, _, err = o.decoded(r.memory, o.raw); err != nil {
			return nil, err
		}
	}
	return admission.NewAttributesRecord(nil, nil, r.requested.Kind, r.req.GetNamespace(), r.req.GetName(),
		r.requested.Resource, r.requested.Subresource, admission.Operation(r.req.GetOperation()), options, r.req.GetDryRun(),
		userInfo(r.req.GetUserInfo())), nil
}

// decoded is the object as CEL sees it, given it in some version. It is booked as long as the object is in use.
func (o *object) decoded(m Memory, raw []byte) (runtime.Object, conversion.Longest, error) {
	if err := o.book(m, conversion.ExtentOf(raw).Untyped()); err != nil {
		return nil, conversion.Longest{}, err
	}
	return decode(raw)
}

func decode(raw []byte) (runtime.Object, conversion.Longest, error) {
	content, longest, err := conversion.Content(raw)
	if err != nil {
		return nil, longest, fmt.Errorf("an object of the request is not JSON: %w", err)
	}
	return &unstructured.Unstructured{Object: content}, longest, nil
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
