package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/config/typecheck"
)

// The kinds of policies and of the documents that put them into force.
const (
	validatingPolicyKind  = policy.ValidatingKind
	validatingBindingKind = validatingPolicyKind + bindingSuffix
	mutatingPolicyKind    = policy.MutatingKind
	mutatingBindingKind   = mutatingPolicyKind + bindingSuffix
)

// bindingSuffix makes the kind of the bindings of the kind of a policy, also of portcullis.dev.
const bindingSuffix = "Binding"

// The codes of problems about how policies and bindings fit together.
const (
	// CodeNoPolicy: a binding names a policy that is not there.
	CodeNoPolicy = "no-policy"
	// CodeNoBinding: no binding puts a policy into force.
	CodeNoBinding = "no-binding"
)

// kubernetesObject is a policy of Kubernetes, or a binding.
type kubernetesObject interface {
	runtime.Object
	metav1.Object
}

// createObject completes a policy or a binding, with its matchConstraints or matchResources, as kube-apiserver does on create. The versions before v1 have the
// same fields and defaults.
func createObject(o kubernetesObject, kind string, m *admissionregistrationv1.MatchResources) field.ErrorList {
	o.GetObjectKind().SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(kind))
	setMatchResources(m)
	return createMeta(o)
}

// readPolicy completes a ValidatingAdmissionPolicy. Kubernetes' validation compiles each expression, and so waits until these are counted (compilePolicy).
func readPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	p.Status = admissionregistrationv1.ValidatingAdmissionPolicyStatus{}
	setDefault(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	return createObject(p, validatingPolicyKind, p.Spec.MatchConstraints)
}

// readHookPolicy is readPolicy for a ValidatingHookPolicy.
func readHookPolicy(p *kinds.ValidatingHookPolicy, _ Validator) (*admissionregistrationv1.ValidatingAdmissionPolicy, field.ErrorList) {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
	return policy, readPolicy(policy)
}

// readMutatingPolicy is readPolicy for a MutatingAdmissionPolicy.
func readMutatingPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
	setDefault(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	return createObject(p, mutatingPolicyKind, p.Spec.MatchConstraints)
}

// readBinding returns a function that completes and validates a binding of a kind.
func readBinding[B kubernetesObject](kind string, matchResources func(B) *admissionregistrationv1.MatchResources) func(B, Validator) (B, field.ErrorList) {
	return func(b B, v Validator) (B, field.ErrorList) {
		errs := createObject(b, kind, matchResources(b))
		return b, append(errs, v.Validate(b.DeepCopyObject())...)
	}
}

// setMatchResources is SetDefaults_MatchResources and SetDefaults_Rule.
func setMatchResources(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	setDefault(&m.MatchPolicy, admissionregistrationv1.Equivalent)
	setDefault(&m.NamespaceSelector, metav1.LabelSelector{})
	setDefault(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			setDefault(&rules[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
}

// rulesOf returns all rules of criteria, as rules of a webhook.
func rulesOf(m *admissionregistrationv1.MatchResources) (all []admissionregistrationv1.RuleWithOperations) {
	if m == nil {
		return nil
	}
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			all = append(all, rules[i].RuleWithOperations)
		}
	}
	return all
}

// IsPolicy reports whether the document is a policy.
func (o *Object) IsPolicy() bool { return o.Policy != nil || o.MutatingPolicy != nil || o.Short != nil }

// binds is the name of the policy that the document puts into force; empty if it is no binding.
func (o *Object) binds() string {
	switch {
	case o.Binding != nil:
		return o.Binding.Spec.PolicyName
	case o.MutatingBinding != nil:
		return o.MutatingBinding.Spec.PolicyName
	}
	return ""
}

// expressions returns all expressions of a policy of Kubernetes.
func (o *Object) expressions() (all []typecheck.Expression) {
	add := func(text, format string, i int) {
		if text != "" {
			all = append(all, typecheck.Expression{Field: fmt.Sprintf("spec."+format, i), Text: text})
		}
	}
	common := func(conditions []admissionregistrationv1.MatchCondition, variables []admissionregistrationv1.Variable) {
		for i := range conditions {
			add(conditions[i].Expression, "matchConditions[%d].expression", i)
		}
		for i := range variables {
			field := fmt.Sprintf("spec.variables[%d].expression", i)
			all = append(all, typecheck.Expression{Field: field, Text: variables[i].Expression, Variable: variables[i].Name})
		}
	}
	if p := o.Policy; p != nil {
		common(p.Spec.MatchConditions, p.Spec.Variables)
		for i := range p.Spec.Validations {
			add(p.Spec.Validations[i].Expression, "validations[%d].expression", i)
			add(p.Spec.Validations[i].MessageExpression, "validations[%d].messageExpression", i)
		}
		for i := range p.Spec.AuditAnnotations {
			add(p.Spec.AuditAnnotations[i].ValueExpression, "auditAnnotations[%d].valueExpression", i)
		}
	}
	if p := o.MutatingPolicy; p != nil {
		common(p.Spec.MatchConditions, p.Spec.Variables)
		for i := range p.Spec.Mutations {
			if patch := p.Spec.Mutations[i].JSONPatch; patch != nil {
				add(patch.Expression, "mutations[%d].jsonPatch.expression", i)
			}
			if configuration := p.Spec.Mutations[i].ApplyConfiguration; configuration != nil {
				add(configuration.Expression, "mutations[%d].applyConfiguration.expression", i)
			}
		}
	}
	return all
}

// Typed is the policy as its types are checked, with the fields of the document; nil if the object is no policy.
func (o *Object) Typed() *typecheck.Policy {
	switch {
	case o.Policy != nil:
		return &typecheck.Policy{Constraints: o.Policy.Spec.MatchConstraints, Params: o.Policy.Spec.ParamKind, Expressions: o.expressions()}
	case o.MutatingPolicy != nil:
		spec := &o.MutatingPolicy.Spec
		return &typecheck.Policy{Constraints: spec.MatchConstraints, Params: spec.ParamKind, Expressions: o.expressions()}
	case o.Expandable != nil:
		return o.Expandable.Typed()
	}
	return nil
}

// compilePolicy validates and compiles the policy of an object, whose cost is within its limits, unless a policy of the same content is in use. Expressions
// have the limits of matchConditions.
func (d *document) compilePolicy(o *Object) (ok bool) {
	if err := o.seal(); err != nil {
		d.fault(CodeInternal, "", err.Error())
		return false
	}
	if o.Policy != nil {
		o.Definition = d.validating.Get(o.Digest)
	} else {
		o.MutatingDefinition = d.mutating.Get(o.Digest)
	}
	if o.Definition != nil || o.MutatingDefinition != nil {
		return true
	}
	ok = true
	for _, x := range o.expressions() {
		if len(x.Text) > MaxExpressionBytes {
			ok = false
			d.fault(CodeLimit, x.Field, fmt.Sprintf("the expression has %s bytes, and at most %s are compiled", thousands(len(x.Text)), thousands(MaxExpressionBytes)))
		} else if err := d.expressions.Check(x.Text); err != nil {
			ok = false
			d.fault(CodeInvalid, x.Field, err.Error())
		}
	}
	if !ok {
		return false
	}
	begun, asked := time.Now(), runtime.Object(o.MutatingPolicy)
	if o.Policy != nil {
		asked = o.Policy
	}
	errs := d.validator.Validate(asked.DeepCopyObject())
	for _, err := range errs {
		d.invalid(err)
	}
	switch {
	case len(errs) > 0:
	case o.Policy != nil:
		o.Definition = d.policies.Compile(o.Policy)
		d.validating.Put(o.Digest, o.Definition)
	default:
		o.MutatingDefinition = d.policies.CompileMutating(o.MutatingPolicy)
		d.mutating.Put(o.Digest, o.MutatingDefinition)
	}
	if d.budget != nil {
		d.budget.spend(time.Since(begun))
	}
	return len(errs) == 0
}

// PolicyOf is the policy that a binding puts into force; the zero Key if the object is no binding.
func (o *Object) PolicyOf() Key {
	if o.binds() == "" {
		return Key{}
	}
	return Key{Kind: strings.TrimSuffix(o.Kind, bindingSuffix), Name: o.binds()}
}

// boundPolicies returns the policies that bindings put into force, and each Policy, which needs none. The problems are about policies and bindings that
// stand alone, and about params that contradict each other.
func boundPolicies(objects []Object) (bound []match.Object, problems Problems) {
	bindings := map[Key][]*Object{}
	for i := range objects {
		if o := &objects[i]; o.binds() != "" {
			bindings[o.PolicyOf()] = append(bindings[o.PolicyOf()], o)
		}
	}
	params, problems := paramsByKind(objects)
	for i := range objects {
		o := &objects[i]
		if o.Short != nil {
			bound = append(bound, shortObjects(o)...)
		}
		if !o.IsPolicy() || o.Short != nil {
			continue
		}
		mine := bindings[o.Key]
		delete(bindings, o.Key)
		if len(mine) == 0 {
			message := "no " + o.WrittenKind() + bindingSuffix + " puts the policy into force: write one with spec.policyName: " + o.Name
			problems = append(problems, o.Problem(match.SeverityWarning, CodeNoBinding, "", message))
			continue
		}
		bound = append(bound, bind(o, mine, params[o.ParamKind()]))
	}
	for _, alone := range bindings {
		for _, o := range alone {
			message := "there is no " + strings.TrimSuffix(o.WrittenKind(), bindingSuffix) + " " + o.binds()
			problems = append(problems, o.Problem(match.SeverityWarning, CodeNoPolicy, "spec.policyName", message))
		}
	}
	return bound, problems
}

// bind returns a policy with its bindings, and with its params in the configuration, which may be nil. Its digest stands for all of them.
func bind(o *Object, bindings []*Object, params *configuredParams) match.Object {
	digest, definition, mutates := sha256.New(), o.Definition, o.MutatingDefinition
	digest.Write([]byte(o.Digest))
	if params != nil {
		digest.Write(params.digest.Sum(nil))
		if definition != nil {
			definition = definition.WithParams(params.Params)
		} else {
			mutates = mutates.WithParams(params.Params)
		}
	}
	var validating []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
	var mutating []*admissionregistrationv1.MutatingAdmissionPolicyBinding
	for _, b := range bindings {
		digest.Write([]byte(b.Digest))
		if b.Binding != nil {
			validating = append(validating, b.Binding)
		} else {
			mutating = append(mutating, b.MutatingBinding)
		}
	}
	bound := match.Object{Source: o.Origin(), Digest: hex.EncodeToString(digest.Sum(nil))}
	if definition != nil {
		bound.Policy = definition.Bind(validating)
	} else {
		bound.Policy = mutates.Bind(mutating)
	}
	return bound
}
