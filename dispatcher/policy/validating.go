package policy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	celgo "github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// ValidatingKind is the kind of a [Validating].
const ValidatingKind = "ValidatingAdmissionPolicy"

// Definition is a compiled ValidatingAdmissionPolicy. It is immutable.
type Definition struct {
	compiled

	policy      *admissionregistrationv1.ValidatingAdmissionPolicy
	validations []program
	messages    []program // by validation; the zero program without a messageExpression
	annotations []program
}

// Compile compiles a policy that is valid and has its defaults. It keeps the policy, which must not change afterwards. An expression that does not
// compile fails whenever it is evaluated, as in kube-apiserver (compilePolicy of its validating plugin).
func (c *Compiler) Compile(p *admissionregistrationv1.ValidatingAdmissionPolicy) *Definition {
	c.mu.Lock()
	defer c.mu.Unlock()
	common, declared := c.begin(p.Spec.ParamKind, p.Spec.Variables, p.Spec.MatchConditions)
	d := &Definition{compiled: common, policy: p, messages: make([]program, len(p.Spec.Validations))}
	if d.err != nil {
		return d
	}
	for i, validation := range p.Spec.Validations {
		d.ask(validation.Expression, ".validations[%d].expression", i)
		d.ask(validation.MessageExpression, ".validations[%d].messageExpression", i)
		d.validations = append(d.validations, c.compile(validation.Expression, declared, d.types(celgo.BoolType)...))
		if validation.MessageExpression != "" {
			d.messages[i] = c.compile(validation.MessageExpression, cel.OptionalVariableDeclarations{HasParams: declared.HasParams}, d.types(celgo.StringType)...)
		}
	}
	for i, annotation := range p.Spec.AuditAnnotations {
		d.ask(annotation.ValueExpression, ".auditAnnotations[%d].valueExpression", i)
		d.annotations = append(d.annotations, c.compile(annotation.ValueExpression, declared, d.types(celgo.StringType, celgo.NullType)...))
	}
	d.bound(d.programs()...)
	return d
}

// programs are the programs of all expressions but variables.
func (d *Definition) programs() [][]program {
	return [][]program{d.conditions, d.validations, d.messages, d.annotations}
}

// Validating is a policy with the bindings that put it into force. It is immutable, and may be used concurrently.
type Validating struct {
	*Definition

	bindings   []binding
	namespaces *metav1.LabelSelector // BindingNamespaces
	short      bool                  // BindShort
	own        []string              // BindShort
}

var _ match.Policy = (*Validating)(nil)

// binding is a ValidatingAdmissionPolicyBinding.
type binding struct {
	*admissionregistrationv1.ValidatingAdmissionPolicyBinding

	criteria *match.Criteria
	paramRef *paramRef // nil without params
}

// Bind returns the policy with its bindings, which are valid, have their defaults, and must not change afterwards.
func (d *Definition) Bind(bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding) *Validating {
	v := &Validating{Definition: d}
	var all []*match.Criteria
	for _, b := range bindings {
		criteria := match.NewCriteria(fmt.Sprintf("binding %q", b.Name), b.Spec.MatchResources)
		v.bindings, all = append(v.bindings, binding{b, criteria, newParamRef(b.Spec.ParamRef)}), append(all, criteria)
	}
	v.namespaces = sharedNamespaces(all)
	return v
}

// ID implements [match.Policy].
func (v *Validating) ID() string {
	if v.short {
		return ShortKind + "/" + v.policy.Name
	}
	return ValidatingKind + "/" + v.policy.Name
}

// Reinvocation implements [match.Policy].
func (v *Validating) Reinvocation() admissionregistrationv1.ReinvocationPolicyType {
	return admissionregistrationv1.NeverReinvocationPolicy
}

// Stage implements [match.Policy].
func (v *Validating) Stage() admissionv1.Stage { return admissionv1.Stage_STAGE_VALIDATE }

// Constraints implements [match.Policy].
func (v *Validating) Constraints() *admissionregistrationv1.MatchResources {
	return v.policy.Spec.MatchConstraints
}

// BindingNamespaces implements [match.Policy].
func (v *Validating) BindingNamespaces() *metav1.LabelSelector { return v.namespaces }

// FailurePolicy implements [match.Policy]. A policy that no binding lets deny refuses nothing while the mesh is away.
func (v *Validating) FailurePolicy() admissionregistrationv1.FailurePolicyType {
	for i := range v.bindings {
		for _, action := range v.bindings[i].Spec.ValidationActions {
			if action == admissionregistrationv1.Deny {
				return v.failurePolicy()
			}
		}
	}
	return admissionregistrationv1.Ignore
}

func (d *Definition) failurePolicy() admissionregistrationv1.FailurePolicyType {
	if p := d.policy.Spec.FailurePolicy; p != nil {
		return *p
	}
	return admissionregistrationv1.Fail
}

// Judge implements [match.Policy], as Dispatch of kube-apiserver's validating plugin does for one policy. The policy is evaluated once for each param, and
// once for all bindings without params: they differ in their actions alone.
func (v *Validating) Judge(ctx context.Context, a *match.Attributes, as *conversion.ResourceKind, unmatched error) (match.Judgement, error) {
	r := &verdict{policy: v.policy, short: v.short, ignores: a.FailsOpen() || v.failurePolicy() == admissionregistrationv1.Ignore}
	of := observe(ctx, v)
	of.policyIs(Begun)
	defer of.policyIs(Ended)
	if unmatched != nil {
		r.misconfigured("policy", nil, unmatched)
		return r.response(ctx, a)
	}
	source, err := v.paramsFor(a)
	if err != nil {
		r.misconfigured("policy", nil, err)
		return r.response(ctx, a)
	}
	var in *input
	for i := range v.bindings {
		b := &v.bindings[i]
		switch _, skip, err := b.criteria.Match(ctx, a); {
		case err != nil:
			r.misconfigured("binding", b, err)
			continue
		case skip != "":
			of.binding(Unbound, b.Name)
			continue
		}
		of.binding(Bound, b.Name)
		r.reach = max(r.reach, bound)
		params, err := source.collect(ctx, b.paramRef)
		if err != nil {
			r.misconfigured("binding", b, err)
			continue
		}
		if in == nil && len(params) > 0 {
			if in, err = inputOf(ctx, a, as); err != nil {
				r.misconfigured("binding", b, fmt.Errorf("failed to convert object version: %w", err))
				continue
			}
			if refused, err := v.namespaceFor(ctx, in, a); refused != nil {
				return noVerdict(refused)
			} else if err != nil {
				r.misconfigured("policy", nil, err)
				return r.response(ctx, a)
			}
		}
		v.count(ctx, r, b, in, params)
	}
	return r.response(ctx, a)
}

// count counts the decisions for a binding, with each of its params.
func (v *Validating) count(ctx context.Context, r *verdict, b *binding, in *input, params []param) {
	for _, p := range params {
		known := r.decisionsFor(p)
		if known == nil {
			known = v.validate(ctx, in.withParam(p))
			r.keep(p, known)
		}
		r.count(b, known)
	}
}

// decision is the result of one validation: allowed, denied or failed.
type decision struct {
	message string
	reason  metav1.StatusReason
	denied  bool
	failed  bool
}

// decisions are the results of a policy for one request, without regard to bindings and failure policies.
type decisions struct {
	validations []decision
	annotations []annotation
	excluded    bool // by the matchConditions
}

// reach is how far the request comes with the param.
func (d *decisions) reach() reach {
	if d.excluded {
		return excluded
	}
	return decided
}

// annotation is a value of an audit annotation, or why it has none.
type annotation struct {
	key, value string
	err        string
	// ignorable: the failure policy may ignore err, since the expression failed to evaluate. A value of another type denies whatever the failure policy.
	ignorable bool
}

// failed is the result of a policy that could not be evaluated.
func failed(err error) *decisions {
	return &decisions{validations: []decision{{message: err.Error(), failed: true}}}
}

// validate evaluates all expressions, as Validate of kube-apiserver's validator does.
func (v *Validating) validate(ctx context.Context, in *input) *decisions {
	if v.err != nil {
		return failed(v.err)
	}
	of := observe(ctx, v)
	if matches, err := v.matches(ctx, in, of); err != nil {
		return failed(err)
	} else if !matches {
		return &decisions{excluded: true}
	}
	a := v.activate(ctx, in, in.seen, of.budget(celconfig.RuntimeCELCostBudget), true)
	out := &decisions{validations: make([]decision, len(v.validations))}
	for i := range v.validations {
		value, failure, err := a.evaluate(ctx, &v.validations[i])
		explained := a
		if err != nil {
			explained = nil // its cost is not known
		}
		of.has(explained, &v.validations[i], value, cmp.Or(failure, err), place{"validations", i})
		switch d := &out.validations[i]; {
		case err != nil:
			return failed(err)
		case failure != nil:
			d.failed, d.message = true, failure.Error()
		case value != celtypes.True:
			d.denied = true
		}
	}
	if slices.ContainsFunc(out.validations, func(d decision) bool { return d.denied }) {
		v.explain(ctx, in, a.budget, out.validations)
	}
	v.annotate(ctx, in, out, of)
	return out
}

// explain sets the messages and reasons of denials. All validations fail if the messageExpressions spend the budget. kube-apiserver evaluates the
// messageExpressions of validations that hold or have failed, too (docs/deviations.md).
func (v *Validating) explain(ctx context.Context, in *input, left budget, all []decision) {
	a := v.activate(ctx, in, in.seen, left, false)
	for i := range all {
		d, validation := &all[i], &v.policy.Spec.Validations[i]
		if !d.denied {
			continue
		}
		if d.reason = metav1.StatusReasonInvalid; validation.Reason != nil {
			d.reason = *validation.Reason
		}
		computed, err := a.message(ctx, &v.messages[i])
		if err != nil {
			fail(all, fmt.Sprintf("failed messageExpression: %s", err))
			return
		}
		d.message = cmp.Or(computed, strings.TrimSpace(validation.Message), "failed expression: "+strings.TrimSpace(validation.Expression))
	}
}

// fail makes failures of all validations that have not failed.
func fail(all []decision, message string) {
	for i := range all {
		if !all[i].failed {
			all[i] = decision{failed: true, message: message}
		}
	}
}

// message evaluates a messageExpression, or nothing if there is none. The error is a budget or a time that is spent, or a fault of this program.
func (a *activation) message(ctx context.Context, x *program) (string, error) {
	if x.ExpressionAccessor == nil {
		return "", nil
	}
	value, _, err := a.evaluate(ctx, x)
	if err != nil {
		return "", err
	}
	text, _ := value.(celtypes.String)
	return oneLine(string(text)), nil
}

// oneLine is the value of a messageExpression; empty if it is too long or has several lines.
func oneLine(text string) string {
	text = strings.TrimSpace(text)
	if len(text) > celconfig.MaxEvaluatedMessageExpressionSizeBytes || strings.Contains(text, "\n") {
		return ""
	}
	return text
}

// annotate evaluates the audit annotations.
func (v *Validating) annotate(ctx context.Context, in *input, out *decisions, of observed) {
	if len(v.annotations) == 0 {
		return
	}
	a := v.activate(ctx, in, in.seen, of.budget(celconfig.RuntimeCELCostBudget), false)
	for i := range v.annotations {
		one := annotation{key: v.policy.Spec.AuditAnnotations[i].Key}
		value, failure, err := a.evaluate(ctx, &v.annotations[i])
		if err != nil {
			*out = *failed(err)
			return
		}
		switch value := value.(type) {
		case celtypes.String:
			one.value = strings.TrimSpace(string(value))
		case celtypes.Null, nil:
		default:
			one.err = fmt.Sprintf("valueExpression '%v' resulted in unsupported return type: %v. Return type must be either string or null.",
				v.policy.Spec.AuditAnnotations[i].ValueExpression, value.Type())
		}
		if failure != nil {
			one.err, one.ignorable = failure.Error(), true
			of.is(Failed, "auditAnnotations", i)
		}
		out.annotations = append(out.annotations, one)
	}
}
