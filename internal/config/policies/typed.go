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
	for i := range p.document.Spec.Validations {
		v, field := &p.document.Spec.Validations[i], fmt.Sprintf("spec.validations[%d].", i)
		out.Expressions = append(out.Expressions, typecheck.Expression{Field: field + "expression", Text: strings.TrimSpace(v.Expression)})
		if v.MessageExpression != "" {
			out.Expressions = append(out.Expressions, typecheck.Expression{Field: field + "messageExpression", Text: strings.TrimSpace(v.MessageExpression)})
		}
	}
	return out
}

// typesOfNames are the types of the names of the library for an object of a resource.
func typesOfNames(resource schema.GroupResource, object *apiservercel.DeclType) map[string]*apiservercel.DeclType {
	texts := apiservercel.NewMapType(apiservercel.StringType, apiservercel.StringType, -1)
	names := map[string]*apiservercel.DeclType{
		nameParameters: apiservercel.NewMapType(apiservercel.StringType, apiservercel.DynType, -1),
		nameLabels:     texts, nameAnnotations: texts, nameImages: apiservercel.NewListType(imageType(), -1),
		namePod: apiservercel.DynType, nameContainers: apiservercel.NewListType(apiservercel.DynType, -1),
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
