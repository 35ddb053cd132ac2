package policies

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/config/typecheck"
)

// Typed is the policy as its types are checked: the expressions of the document, in which the library has its names.
func (p *Policy) Typed() *typecheck.Policy {
	out := &typecheck.Policy{Constraints: p.constraints(), Names: typesOfNames}
	for i, v := range p.document.Spec.Variables {
		field := fmt.Sprintf("spec.variables[%d].expression", i)
		out.Expressions = append(out.Expressions, typecheck.Expression{Field: field, Text: strings.TrimSpace(v.Expression), Variable: v.Name})
	}
	for i := range p.document.Spec.Mutations {
		out.Expressions = append(out.Expressions, p.typedMutation(i)...)
	}
	for i := range p.document.Spec.Validations {
		v, field := &p.document.Spec.Validations[i], fmt.Sprintf("spec.validations[%d].", i)
		out.Expressions = append(out.Expressions, typecheck.Expression{Field: field + "expression", Text: strings.TrimSpace(v.Expression)})
		if v.MessageExpression != "" {
			out.Expressions = append(out.Expressions, typecheck.Expression{Field: field + "messageExpression", Text: strings.TrimSpace(v.MessageExpression)})
		}
	}
	return out
}

// typedMutation are the expressions of a mutation, and the fields that it sets.
func (p *Policy) typedMutation(i int) (all []typecheck.Expression) {
	m, path := &p.document.Spec.Mutations[i], fmt.Sprintf("spec.mutations[%d].", i)
	steps, _ := kinds.ParsePolicyField(m.Field) // Validate has checked it
	fields, ofPod := p.fieldsOf(steps)
	for _, steps := range fields {
		sets := func(r schema.GroupResource) []string {
			if at, _ := (kinds.PolicyResource{Group: r.Group, Resource: r.Resource}).PodTemplate(); ofPod {
				return append(strings.FieldsFunc(at, isDot), steps...)
			}
			return steps
		}
		all = append(all, typecheck.Expression{Field: path + "value", Text: strings.TrimSpace(m.Value), SetsIn: path + "field", Sets: sets})
	}
	if m.When != "" {
		all = append(all, typecheck.Expression{Field: path + "when", Text: strings.TrimSpace(m.When)})
	}
	return all
}

// typesOfNames are the types of the names of the library for an object of a resource.
func typesOfNames(resource schema.GroupResource, object *apiservercel.DeclType) map[string]*apiservercel.DeclType {
	texts := apiservercel.NewMapType(apiservercel.StringType, apiservercel.StringType, -1)
	names := map[string]*apiservercel.DeclType{
		nameParameters: apiservercel.NewMapType(apiservercel.StringType, apiservercel.DynType, -1),
		nameLabels:     texts, nameAnnotations: texts, nameImages: apiservercel.NewListType(imageType(), -1),
		namePod: apiservercel.DynType, nameContainers: apiservercel.NewListType(apiservercel.DynType, -1),
	}
	for _, name := range mutationNames(kinds.MaxPolicyFieldLists) {
		names[name] = apiservercel.DynType
	}
	path, ok := kinds.PolicyResource{Group: resource.Group, Resource: resource.Resource}.PodTemplate()
	if !ok {
		return names
	}
	if pod := at(object, path); pod != nil {
		names[namePod] = pod
		if containers := at(pod, "spec.ephemeralContainers"); containers != nil { // they have all the fields of other containers
			names[nameContainers] = containers
		}
	}
	return names
}

// at is the type of a field of an object; nil if it is not known.
func at(of *apiservercel.DeclType, path string) *apiservercel.DeclType {
	for name := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '.' }) {
		f, ok := of.Fields[name]
		if !ok {
			return nil
		}
		of = f.Type
	}
	return of
}
