package policy

import (
	"regexp"
	"slices"

	celgo "github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission/plugin/cel"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
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

// BindShort is [Definition.Bind] for the documents that a Policy of portcullis.dev is expanded into. The ID and the messages name that Policy. own are
// the variables of the Policy: explanations show the others without "variables.", as its author writes them.
func (d *Definition) BindShort(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding, own []string) *Validating {
	v := d.Bind([]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{b})
	v.short, v.own = true, own
	return v
}

// BindShort is [MutatingDefinition.Bind] for such documents, as [Definition.BindShort].
func (d *MutatingDefinition) BindShort(b *admissionregistrationv1.MutatingAdmissionPolicyBinding, own []string) *Mutating {
	m := d.Bind([]*admissionregistrationv1.MutatingAdmissionPolicyBinding{b})
	m.short, m.own = true, own
	return m
}

// ownVariables are the variables of a Policy of portcullis.dev; short is false for a policy of Kubernetes.
func ownVariables(p match.Policy) (own []string, short bool) {
	switch p := p.(type) {
	case *Validating:
		return p.own, p.short
	case *Mutating:
		return p.own, p.short
	}
	return nil, false
}

// namedVariable is a variable in an expression.
var namedVariable = regexp.MustCompile(`\b` + cel.VariableVarName + `\.(\w+)`)

// shortened is a part of an expression as the author of a Policy writes it.
func shortened(text string, own []string) string {
	return namedVariable.ReplaceAllStringFunc(text, func(named string) string {
		if name := named[len(cel.VariableVarName)+1:]; !slices.Contains(own, name) {
			return name
		}
		return named
	})
}
