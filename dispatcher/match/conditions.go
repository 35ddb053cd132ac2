package match

import (
	"context"
	"fmt"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// newConditionCompiler returns a compiler for matchConditions in kube-apiserver's own CEL environment. It is costly.
func newConditionCompiler() cel.ConditionCompiler {
	return cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
}

// compileConditions compiles the matchConditions of a webhook, as GetCompiledMatcher of k8s.io/apiserver's
// WebhookAccessor does. A condition that does not compile stays, and fails whenever it is evaluated.
func compileConditions(compiler cel.ConditionCompiler, w *webhook) (matchconditions.Matcher, []error) {
	accessors := make([]cel.ExpressionAccessor, len(w.MatchConditions))
	for i, c := range w.MatchConditions {
		accessors[i] = &matchconditions.MatchCondition{Name: c.Name, Expression: c.Expression}
	}
	compiled := compiler.CompileCondition(accessors, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
	matcherType := "validating"
	if w.stage == admissionv1.Stage_STAGE_MUTATE {
		matcherType = "admit"
	}
	return matchconditions.NewMatcher(compiled, w.FailurePolicy, "webhook", matcherType, w.Name), compiled.CompilationErrors()
}

// matchConditions evaluates the conditions of the hook: a false one skips the hook, whatever the others say; else a
// failed one refuses the review with 403 or, with failurePolicy Ignore, skips the hook (SEMANTICS C18).
func (h *Hook) matchConditions(ctx context.Context, a *Attributes) Decision {
	if h.conditions == nil {
		return Decision{Match: true}
	}
	input, err := a.conditions.get(a)
	if err != nil {
		return Decision{Err: apierrors.NewInternalError(err)}
	}
	// The authorizer of the cluster comes in here; without one, what asks it fails to evaluate.
	result := h.conditions.Match(ctx, input, nil, nil)
	switch {
	case result.Error != nil:
		return Decision{Err: apierrors.NewForbidden(a.original.GroupResource(), a.req.GetName(), result.Error)}
	case !result.Matches:
		return Decision{Skip: SkipConditions, condition: result.FailedConditionName}
	}
	return Decision{Match: true}
}

// conditionInput is a request as conditions see it, decoded once and only if a hook has conditions.
type conditionInput struct {
	once       sync.Once
	attributes *admission.VersionedAttributes
	err        error
}

func (c *conditionInput) get(a *Attributes) (*admission.VersionedAttributes, error) {
	c.once.Do(func() { c.attributes, c.err = versioned(a) })
	return c.attributes, c.err
}

// versioned is the request in the types of k8s.io/apiserver. The objects are in the version in which they came.
func versioned(a *Attributes) (*admission.VersionedAttributes, error) {
	object, err := a.object.decoded()
	if err != nil {
		return nil, fmt.Errorf("the object is not JSON: %w", err)
	}
	old, err := a.old.decoded()
	if err != nil {
		return nil, fmt.Errorf("the old object is not JSON: %w", err)
	}
	options, err := newObject(a.req.GetOptions()).decoded()
	if err != nil {
		return nil, fmt.Errorf("the options are not JSON: %w", err)
	}
	record := admission.NewAttributesRecord(object, old, a.originalKind(), a.req.GetNamespace(), a.req.GetName(),
		a.original, a.req.GetSubResource(), admission.Operation(a.req.GetOperation()), options, a.req.GetDryRun(),
		userInfo(a.req.GetUserInfo()))
	return &admission.VersionedAttributes{
		Attributes: record, VersionedObject: object, VersionedOldObject: old, VersionedKind: gvk(a.req.GetKind()),
	}, nil
}

// decoded is the object as CEL sees it. An absent object is a nil interface.
func (o *object) decoded() (runtime.Object, error) {
	if o == nil {
		return nil, nil //nolint:nilnil // absence is a value of a request
	}
	var content map[string]any
	if err := utiljson.Unmarshal(o.raw, &content); err != nil {
		return nil, err
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
