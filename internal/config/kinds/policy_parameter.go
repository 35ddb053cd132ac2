package kinds

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

const (
	// MaxParameters bounds PolicySpec.Parameters.
	MaxParameters = 64
	// MaxParameterName bounds Parameter.Name, in bytes.
	MaxParameterName = 63
	// MaxParameterText bounds each text in a value, in bytes.
	MaxParameterText = 1 << 10
	// MaxParameterItems bounds a list that is a value.
	MaxParameterItems = 256
)

// Parameter is a value for expressions, which may differ by cluster. A value is a text, a number, true or false, or a list in which all
// items have the same type among these; it is a string, an int64, a float64, a bool or a []any. All values of a parameter are of one type.
type Parameter struct {
	// Name is the parameter in expressions: parameters.NAME. An identifier of CEL.
	Name string `json:"name"`
	// Default is the value in a cluster that ByCluster does not name. Absent, each cluster of PolicySpec.Clusters needs a value.
	Default any `json:"default,omitempty"`
	// ByCluster are the values in some clusters, by their names.
	ByCluster map[string]any `json:"byCluster,omitempty"`
}

// ValueIn is the value in a cluster. An empty name is a cluster that the policy does not name.
func (p *Parameter) ValueIn(cluster string) any {
	if value, ok := p.ByCluster[cluster]; ok {
		return value
	}
	return p.Default
}

func (s *PolicySpec) validateParameters(path *field.Path) field.ErrorList {
	if len(s.Parameters) > MaxParameters {
		return field.ErrorList{field.TooMany(path, len(s.Parameters), MaxParameters)}
	}
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range s.Parameters {
		p, at := &s.Parameters[i], path.Index(i)
		errs = append(errs, s.validateParameter(p, at)...)
		if names[p.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
		}
		names[p.Name] = true
	}
	return errs
}

// validateNameInExpressions checks the name of a parameter or a variable.
func validateNameInExpressions(name string, path *field.Path, meaning string) field.ErrorList {
	escaped, ok := apiservercel.Escape(name)
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, meaning)}
	case len(name) > MaxParameterName:
		return field.ErrorList{field.TooLongMaxLength(path, name, MaxParameterName)}
	case !ok || escaped != name:
		return field.ErrorList{field.Invalid(path, name, "must be letters, digits and _, and no word of CEL such as in")}
	}
	return nil
}

func (s *PolicySpec) validateParameter(p *Parameter, path *field.Path) field.ErrorList {
	errs := validateNameInExpressions(p.Name, path.Child("name"), "the parameter in expressions: parameters.NAME")
	clusters := slices.Sorted(maps.Keys(p.ByCluster))
	errs = append(errs, s.validateClusters(clusters, path.Child("byCluster"))...)
	return append(errs, s.validateValues(p, clusters, path)...)
}

// validateValues checks that each cluster has a value, and that all values are of one type.
func (s *PolicySpec) validateValues(p *Parameter, clusters []string, path *field.Path) (errs field.ErrorList) {
	first := ""
	check := func(value any, at *field.Path) {
		kind, problem := typeOfValue(value)
		switch {
		case problem != "":
			errs = append(errs, field.Invalid(at, field.OmitValueType{}, problem))
		case first == "":
			first = kind
		case kind != first:
			errs = append(errs, field.Invalid(at, value, fmt.Sprintf("is %s, and another value of the parameter is %s", kind, first)))
		}
	}
	if p.Default != nil {
		check(p.Default, path.Child("default"))
	}
	for _, cluster := range clusters {
		check(p.ByCluster[cluster], path.Child("byCluster").Key(cluster))
	}
	if p.Default != nil {
		return errs
	}
	if len(s.Clusters) == 0 {
		return append(errs, field.Required(path.Child("default"), "the policy is in force in all clusters: name some in spec.clusters, or give the value for others"))
	}
	for _, cluster := range s.Clusters {
		if _, ok := p.ByCluster[cluster]; !ok {
			errs = append(errs, field.Required(path.Child("byCluster").Key(cluster), "the value in this cluster of spec.clusters, or a default"))
		}
	}
	return errs
}

// typeOfValue is the type of a value, or the reason that it is none.
func typeOfValue(value any) (kind, problem string) {
	switch v := value.(type) {
	case string:
		if len(v) > MaxParameterText {
			return "", fmt.Sprintf("a text has at most %d bytes", MaxParameterText)
		}
		return "a text", ""
	case bool:
		return "true or false", ""
	case int64, float64:
		return "a number", ""
	case []any:
		return typeOfList(v)
	}
	return "", "must be a text, a number, true or false, or a list of these"
}

func typeOfList(list []any) (kind, problem string) {
	if len(list) > MaxParameterItems {
		return "", fmt.Sprintf("a list has at most %d items", MaxParameterItems)
	}
	first := ""
	for _, item := range list {
		if _, nested := item.([]any); nested {
			return "", "must be a list of texts, of numbers, or of true and false: lists in lists are not read"
		}
		switch kind, problem := typeOfValue(item); {
		case problem != "":
			return "", problem
		case first == "":
			first = kind
		case kind != first:
			return "", "must be a list of one type: it has " + first + " and " + kind
		}
	}
	return "a list", ""
}
