package config

import (
	"cmp"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/config/policies"
)

// shortVariant is a compiled variant of a Policy.
type shortVariant struct {
	policies.Variant

	policy match.Policy
}

// shortCost is the cost of a Policy: it has one hook for each of its variants.
func shortCost(s *kinds.PolicySpec) (c Cost) {
	variants := 1 + len(s.Differing())
	add := func(expression string) {
		if expression != "" {
			c[Conditions], c[ConditionBytes] = c[Conditions]+1, c[ConditionBytes]+len(expression)
		}
	}
	for i := range s.Variables {
		add(s.Variables[i].Expression)
	}
	for i := range s.Validations {
		add(s.Validations[i].Expression)
		if v := &s.Validations[i]; s.PodControllers && v.Field != "" {
			add(v.Field + cmp.Or(v.MessageExpression, v.Message)) // its path depends on the kind
		} else {
			add(v.MessageExpression)
		}
	}
	for i := range s.Mutations {
		add(s.Mutations[i].Value)
		add(s.Mutations[i].When)
	}
	c[Hooks] = variants
	c[Conditions] += variants     // their parameters
	names := 3 * len(s.Resources) // of Pods there are three
	if s.PodControllers {
		names += len(kinds.PodControllers())
	}
	c[Combinations] = variants * len(s.EffectiveOperations()) * names
	return c
}

// readShort reads a Policy; nil for a Policy that is not valid.
func (d *document) readShort() (*kinds.Policy, bool) {
	p, ok := readAs(d, (*kinds.Policy).Validate)
	if !ok {
		return nil, false
	}
	return p, true
}

// compileShort compiles a Policy, and its expansion as a policy of Kubernetes. Parameters that differ by cluster are compiled for each variant.
func (d *document) compileShort(o *Object) bool {
	compiler, err := d.short()
	if err != nil {
		d.fault(CodeInternal, "", err.Error())
		return false
	}
	p, errs := compiler.Compile(o.Short)
	for _, err := range errs {
		d.invalid(err)
	}
	if len(errs) > 0 {
		return false
	}
	variants := p.Variants()
	expansion := p.Expand(variants[0].AnyCluster())
	expanded := Object{Policy: expansion.Policy, MutatingPolicy: expansion.MutatingPolicy}
	if !d.compilePolicy(&expanded) {
		return false
	}
	o.Expandable = p
	for _, v := range variants {
		o.variants = append(o.variants, shortVariant{v, d.bindShort(&expanded, &v, o.Short.Spec.VariableNames(), v.Parameters != variants[0].Parameters)})
	}
	return true
}

// bindShort puts a variant of a Policy into force, whose expansion is compiled. In shadow it denies and changes too: HookRoutes and the mode shadow have
// one report. own are the variables of the Policy.
func (d *document) bindShort(expanded *Object, v *policies.Variant, own []string, ownParameters bool) match.Policy {
	if definition := expanded.MutatingDefinition; definition != nil {
		if ownParameters {
			definition = d.policies.WithMutatingVariable(definition, policies.ParametersVariable, v.Parameters)
		}
		b := &admissionregistrationv1.MutatingAdmissionPolicyBinding{}
		b.Name, b.Spec.PolicyName = expanded.MutatingPolicy.Name, expanded.MutatingPolicy.Name
		return definition.BindShort(b, own)
	}
	definition := expanded.Definition
	if ownParameters {
		definition = d.policies.WithVariable(definition, policies.ParametersVariable, v.Parameters)
	}
	return definition.BindShort(bindingOf(expanded.Policy.Name, v.Mode), own)
}

// bindingOf puts a Policy with validations into force.
func bindingOf(name string, mode kinds.PolicyMode) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	action := admissionregistrationv1.Deny
	if mode == kinds.ModeWarn {
		action = admissionregistrationv1.Warn
	}
	b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	b.Name, b.Spec.PolicyName, b.Spec.ValidationActions = name, name, []admissionregistrationv1.ValidationAction{action}
	return b
}

// shortField is the path in a Policy for a path in its expansion.
func shortField(path string) string {
	switch constraints := "spec.matchConstraints."; {
	case strings.HasPrefix(path, constraints+"resourceRules"):
		return "spec.resources"
	case strings.HasPrefix(path, constraints):
		return "spec.exclude"
	}
	return strings.TrimSuffix(path, ".jsonPatch.expression")
}

// shortObjects are the variants of a Policy as match takes them.
func shortObjects(o *Object) []match.Object {
	all := make([]match.Object, 0, len(o.variants))
	for _, v := range o.variants {
		clusters := v.Clusters
		if v.Cluster != "" {
			clusters = []string{v.Cluster}
		}
		all = append(all, match.Object{
			Scope: v.Cluster, Except: v.Except, Source: o.Origin(), Digest: o.Digest, Policy: v.policy,
			Route: match.Route{Clusters: clusters, Shadow: v.Mode == kinds.ModeShadow},
		})
	}
	return all
}
