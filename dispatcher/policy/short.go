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
	other := *d
	other.compiled = c.withVariable(d.compiled, name, expression)
	other.costs = newCosts(other.variables, other.programs()...)
	return &other
}

// WithMutatingVariable is [Compiler.WithVariable] for a policy that changes objects.
func (c *Compiler) WithMutatingVariable(d *MutatingDefinition, name, expression string) *MutatingDefinition {
	other := *d
	other.compiled = c.withVariable(d.compiled, name, expression)
	other.costs = newCosts(other.variables, other.programs()...)
	return &other
}

func (c *Compiler) withVariable(p compiled, name, expression string) compiled {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.variables = slices.Clone(p.variables)
	declared := cel.OptionalVariableDeclarations{HasParams: p.paramKind != nil, HasAuthorizer: true}
	for i := range p.variables {
		if p.variables[i].name == name {
			p.variables[i].program = c.compile(expression, declared, celgo.AnyType, celgo.DynType)
		}
	}
	return p
}

// BindShort is [Definition.Bind] for the documents that a Policy of portcullis.dev is expanded into. The ID and the messages name that Policy.
func (d *Definition) BindShort(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) *Validating {
	v := d.Bind([]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{b})
	v.short = true
	return v
}

// BindShort is [MutatingDefinition.Bind] for the documents that a Policy of portcullis.dev is expanded into. The ID and the messages name that Policy.
func (d *MutatingDefinition) BindShort(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) *Mutating {
	m := d.Bind([]*admissionregistrationv1.MutatingAdmissionPolicyBinding{b})
	m.short = true
	return m
}
