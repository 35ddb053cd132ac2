package policy

import (
	"slices"

	celgo "github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
)

// ShortKind is the kind of a policy from [Definition.BindShort].
const ShortKind = "Policy"

// WithVariable returns a policy with another expression for a variable; it shares all else. A policy of many clusters differs so in its
// parameters. d stays as it is.
func (c *Compiler) WithVariable(d *Definition, name, expression string) *Definition {
	c.mu.Lock()
	defer c.mu.Unlock()
	other := *d
	other.variables = slices.Clone(d.variables)
	declared := cel.OptionalVariableDeclarations{HasParams: d.policy.Spec.ParamKind != nil, HasAuthorizer: true}
	for i := range other.variables {
		if other.variables[i].name == name {
			other.variables[i].CompilationResult = c.compile(expression, declared, celgo.AnyType, celgo.DynType)
		}
	}
	return &other
}

// BindShort is [Definition.Bind] for the documents that a Policy of portcullis.dev is expanded into. The ID and the messages name that Policy.
func (d *Definition) BindShort(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) *Validating {
	v := d.Bind([]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{b})
	v.short = true
	return v
}
