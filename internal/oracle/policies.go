package oracle

import (
	"context"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/warning"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// AuditFailure is the key of the annotation with the failed validations of policies.
const AuditFailure = "validation.policy.admission.k8s.io/validation_failure"

// Judgement is the outcome of ValidatingAdmissionPolicies.
type Judgement struct {
	Outcome

	// Failures are all values that the plugin gave the annotation [AuditFailure]. An API server keeps the first.
	Failures []string
}

// Policies is kube-apiserver's ValidatingAdmissionPolicy plugin, in the cluster of an [Oracle].
type Policies struct {
	oracle     *Oracle
	authorizer authorizer.Authorizer
	matcher    generic.PolicyMatcher
}

// Policies returns the plugin. It reads namespaces as the webhook plugins do.
func (o *Oracle) Policies(a authorizer.Authorizer) *Policies {
	namespaces := o.wiring.informers.Core().V1().Namespaces().Lister()
	return &Policies{oracle: o, authorizer: a, matcher: generic.NewPolicyMatcher(matching.NewMatcher(namespaces, o.wiring.client))}
}

// WithoutNamespaces returns the plugin without the look-up of the namespace for the variable namespaceObject, which then is null.
func (p *Policies) WithoutNamespaces() *Policies {
	return &Policies{oracle: p.oracle, authorizer: p.authorizer, matcher: withoutNamespaces{p.matcher}}
}

type withoutNamespaces struct{ generic.PolicyMatcher }

// GetNamespace implements [generic.PolicyMatcher].
func (withoutNamespaces) GetNamespace(context.Context, string) (*corev1.Namespace, error) {
	return nil, nil //nolint:nilnil // as for an object of no namespace
}

// Judge admits one request by compiled policies, in their order.
func (p *Policies) Judge(ctx context.Context, policies []validating.PolicyHook, req *admissionv1.AdmissionRequest) (Judgement, error) {
	attributes, err := p.oracle.Attributes(req)
	if err != nil {
		return Judgement{}, err
	}
	r := &failureRecorder{recorder: recorder{Attributes: attributes, annotations: map[string]string{}}}
	refusal := validating.NewDispatcher(p.authorizer, p.matcher).Dispatch(warning.WithWarningRecorder(ctx, r), r, p.oracle.objects, policies)
	outcome, err := r.outcome(refusal, nil, gvkOf(req))
	return Judgement{outcome, r.failures}, err
}

// failureRecorder keeps the annotations that come too late, too.
type failureRecorder struct {
	recorder

	failures []string
}

// AddAnnotation implements [admission.Attributes].
func (r *failureRecorder) AddAnnotation(key, value string) error {
	if key == AuditFailure {
		r.failures = append(r.failures, value)
	}
	return r.AddAnnotationWithLevel(key, value, auditinternal.LevelMetadata)
}

// Versioned is the request in the version of a kind, as the API server sends it to webhooks.
func (o *Oracle) Versioned(a admission.Attributes, as schema.GroupVersionKind) (*admission.VersionedAttributes, error) {
	return admission.NewVersionedAttributes(a, as, o.objects)
}

// CompilePolicy compiles a policy as compilePolicy of the plugin does, which is not exported.
func CompilePolicy(p *validating.Policy, bindings ...*validating.PolicyBinding) validating.PolicyHook {
	hook := validating.PolicyHook{Policy: p, Bindings: bindings}
	compiler, err := cel.NewCompositedCompiler(baseEnvironment())
	if err != nil {
		hook.Evaluator = validating.NewValidator(nil, nil, nil, nil, p.Spec.FailurePolicy, err)
		return hook
	}
	c := policyCompiler{compiler, cel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true}}
	for _, v := range p.Spec.Variables {
		compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, c.declared, environment.StoredExpressions)
	}
	var matcher matchconditions.Matcher
	if len(p.Spec.MatchConditions) > 0 {
		matcher = matchconditions.NewMatcher(c.compile(conditionsOf(p)), p.Spec.FailurePolicy, "policy", "validate", p.Name)
	}
	validations, annotations := c.compile(validationsOf(p)), c.compile(annotationsOf(p))
	c.declared.HasAuthorizer = false
	hook.Evaluator = validating.NewValidator(validations, matcher, annotations, c.compile(messagesOf(p)), p.Spec.FailurePolicy, nil)
	return hook
}

type policyCompiler struct {
	*cel.CompositedCompiler

	declared cel.OptionalVariableDeclarations
}

func (c policyCompiler) compile(all []cel.ExpressionAccessor) cel.ConditionEvaluator {
	return c.CompileCondition(all, c.declared, environment.StoredExpressions)
}

func conditionsOf(p *admissionregistrationv1.ValidatingAdmissionPolicy) (all []cel.ExpressionAccessor) {
	for i := range p.Spec.MatchConditions {
		all = append(all, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	return all
}

func validationsOf(p *admissionregistrationv1.ValidatingAdmissionPolicy) (all []cel.ExpressionAccessor) {
	for _, v := range p.Spec.Validations {
		all = append(all, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
	}
	return all
}

// messagesOf has an accessor for each validation; nil without a messageExpression.
func messagesOf(p *admissionregistrationv1.ValidatingAdmissionPolicy) []cel.ExpressionAccessor {
	all := make([]cel.ExpressionAccessor, len(p.Spec.Validations))
	for i, v := range p.Spec.Validations {
		if v.MessageExpression != "" {
			all[i] = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
	}
	return all
}

func annotationsOf(p *admissionregistrationv1.ValidatingAdmissionPolicy) (all []cel.ExpressionAccessor) {
	for _, a := range p.Spec.AuditAnnotations {
		all = append(all, &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression})
	}
	return all
}

// baseEnvironment is getCompositionEnvTemplateWithStrictCost of the plugin.
var baseEnvironment = sync.OnceValue(func() *environment.EnvSet {
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
})
