package kinds

import "k8s.io/apimachinery/pkg/util/validation/field"

// MaxPolicyVariables bounds PolicySpec.Variables.
const MaxPolicyVariables = 64

// PolicyVariable is a value for other expressions of a Policy, as in a ValidatingAdmissionPolicy.
type PolicyVariable struct {
	// Name is its name in expressions: variables.NAME. It is none of the names of the library, such as images.
	Name string `json:"name"`
	// Expression is CEL for the value.
	Expression string `json:"expression"`
}

// VariableNames are the names of the variables, in their order.
func (s *PolicySpec) VariableNames() []string {
	names := make([]string, len(s.Variables))
	for i := range s.Variables {
		names[i] = s.Variables[i].Name
	}
	return names
}

func (s *PolicySpec) validateVariables(path *field.Path) (errs field.ErrorList) {
	if len(s.Variables) > MaxPolicyVariables {
		return field.ErrorList{field.TooMany(path, len(s.Variables), MaxPolicyVariables)}
	}
	names := map[string]bool{}
	for i := range s.Variables {
		v, at := &s.Variables[i], path.Index(i)
		errs = append(errs, validateNameInExpressions(v.Name, at.Child("name"), "the variable in expressions: variables.NAME")...)
		errs = append(errs, validateTexts(at, []policyText{{"expression", v.Expression, "CEL for the value", MaxPolicyExpression, true}})...)
		if names[v.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		}
		names[v.Name] = true
	}
	return errs
}
