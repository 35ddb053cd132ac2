package match

import (
	"context"
	"fmt"
	"slices"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// newConditionCompiler returns a compiler for matchConditions in kube-apiserver's own CEL environment. It is costly.
func newConditionCompiler() cel.ConditionCompiler {
	return cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
}

// conditions are the matchConditions of one hook, compiled. They are costly to make, in time and in memory, so the snapshots
// in which they are the same share them. They are immutable.
type conditions struct {
	written []admissionregistrationv1.MatchCondition
	policy  admissionregistrationv1.FailurePolicyType
	matcher matchconditions.Matcher
	errs    []error
	// requestOnly: none of them reads an object, so that none need be decoded.
	requestOnly bool
}

// conditionsFor are the conditions of a hook: those of the last snapshot if they say the same.
func (c *compiler) conditionsFor(h *Hook, w *webhook) *conditions {
	if c.last != nil {
		known := c.last.conditions[h.ID]
		if known != nil && known.policy == h.FailurePolicy && slices.Equal(known.written, w.MatchConditions) {
			return known
		}
	}
	if c.conditions == nil {
		c.conditions = c.newConditions()
	}
	made := compileConditions(c.conditions, h, w)
	made.requestOnly = len(made.errs) == 0 && c.requestOnly.all(w.MatchConditions)
	return made
}

// conditionsOf are the conditions of the hooks that have some.
func conditionsOf(hooks []*Hook) map[HookID]*conditions {
	all := map[HookID]*conditions{}
	for _, h := range hooks {
		if h.conditions != nil {
			all[h.ID] = h.conditions
		}
	}
	return all
}

// compileConditions compiles the matchConditions of a webhook, as GetCompiledMatcher of k8s.io/apiserver's
// WebhookAccessor does. A condition that does not compile stays, and fails whenever it is evaluated.
func compileConditions(compiler cel.ConditionCompiler, h *Hook, w *webhook) *conditions {
	accessors := make([]cel.ExpressionAccessor, len(w.MatchConditions))
	for i, c := range w.MatchConditions {
		accessors[i] = &matchconditions.MatchCondition{Name: c.Name, Expression: c.Expression}
	}
	compiled := compiler.CompileCondition(accessors, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
	matcherType := "validating"
	if w.stage == admissionv1.Stage_STAGE_MUTATE {
		matcherType = "admit"
	}
	c := &conditions{written: w.MatchConditions, policy: h.FailurePolicy, errs: compiled.CompilationErrors()}
	c.matcher = matchconditions.NewMatcher(compiled, &c.policy, "webhook", matcherType, w.Name)
	return c
}

// matchConditions evaluates the conditions of the hook on the request as the hook sees it: a false one skips the hook,
// whatever the others say; else a failed one refuses the review with 403 or, with failurePolicy Ignore, skips the hook
// (SEMANTICS C18).
func (h *Hook) matchConditions(ctx context.Context, a *Attributes, as *conversion.ResourceKind) Decision {
	if h.conditions == nil {
		return Decision{Match: true, As: as}
	}
	input, err := h.conditions.input(ctx, a, a.seenKind(as))
	if err != nil {
		return Decision{Err: apierrors.NewInternalError(err)}
	}
	result := h.conditions.matcher.Match(ctx, input, nil, a.cluster.Authorizer())
	switch {
	case result.Error != nil:
		return Decision{Err: apierrors.NewForbidden(a.original.Resource.GroupResource(), a.req.GetName(), result.Error)}
	case !result.Matches:
		return Decision{Skip: SkipConditions, As: as, condition: result.FailedConditionName}
	}
	return Decision{Match: true, As: as}
}

// input is the request in the types of k8s.io/apiserver, with its objects in a version of their kind if a condition reads
// them. All else is what the client asked for (NewVersionedAttributes of k8s.io/apiserver/pkg/admission).
func (c *conditions) input(ctx context.Context, a *Attributes, kind schema.GroupVersionKind) (*admission.VersionedAttributes, error) {
	attributes, err := a.record.get(a.request)
	if err != nil {
		return nil, err
	}
	input := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: kind}
	if c.requestOnly {
		return input, nil
	}
	if input.VersionedObject, err = a.object.decodedIn(ctx, a.request, kind); err != nil {
		return nil, err
	}
	if input.VersionedOldObject, err = a.old.decodedIn(ctx, a.request, kind); err != nil {
		return nil, err
	}
	return input, nil
}

// record is what conditions see of a request besides its objects, made once and only if a hook has conditions.
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
		if options, err = decode(o.raw); err != nil {
			return nil, err
		}
	}
	return admission.NewAttributesRecord(nil, nil, r.original.Kind, r.req.GetNamespace(), r.req.GetName(),
		r.original.Resource, r.original.Subresource, admission.Operation(r.req.GetOperation()), options, r.req.GetDryRun(),
		userInfo(r.req.GetUserInfo())), nil
}

func decode(raw []byte) (runtime.Object, error) {
	var content map[string]any
	if err := utiljson.Unmarshal(raw, &content); err != nil {
		return nil, fmt.Errorf("an object of the request is not JSON: %w", err)
	}
	return &unstructured.Unstructured{Object: content}, nil
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

// conditionPolicy is what a failed condition means to the hook, in words.
func conditionPolicy(p admissionregistrationv1.FailurePolicyType) string {
	if p == admissionregistrationv1.Ignore {
		return "failurePolicy Ignore leaves the hook out of every review that reaches it"
	}
	return "failurePolicy Fail refuses every review that reaches it with 403"
}
