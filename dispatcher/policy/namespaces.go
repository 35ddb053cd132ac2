package policy

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Bounds of the selector of bindings that differ: authors choose how many they are, and it becomes a part of an entry. A requirement less makes the entry
// wider.
const (
	// maxSharedRequirements is the most requirements of a selector that count.
	maxSharedRequirements = 8
	// maxSharedValues is the most values of a requirement that counts.
	maxSharedValues = 128
)

// sharedNamespaces selects each namespace that the namespaceSelector of a binding selects, and perhaps others: it has the requirements that all of them
// imply. It is nil if there are none.
func sharedNamespaces(bindings []*match.Criteria) *metav1.LabelSelector {
	texts := make([]string, len(bindings))
	for i, b := range bindings {
		s := b.NamespaceSelector()
		parsed, err := metav1.LabelSelectorAsSelector(s)
		if s == nil || err != nil || parsed.Empty() {
			return nil
		}
		texts[i] = parsed.String()
	}
	if len(slices.Compact(texts)) <= 1 {
		if len(bindings) == 0 {
			return nil
		}
		return bindings[0].NamespaceSelector()
	}
	shared := requirementsOf(bindings[0].NamespaceSelector())
	for _, b := range bindings[1:] {
		shared = eitherOf(shared, requirementsOf(b.NamespaceSelector()))
	}
	if len(shared) == 0 {
		return nil
	}
	return &metav1.LabelSelector{MatchExpressions: shared}
}

// requirementsOf are the requirements of a selector that count. Labels must meet all of them.
func requirementsOf(s *metav1.LabelSelector) (all []metav1.LabelSelectorRequirement) {
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		all = append(all, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{s.MatchLabels[key]}})
	}
	return counting(append(all, s.MatchExpressions...))
}

// counting are the requirements within the bounds.
func counting(all []metav1.LabelSelectorRequirement) []metav1.LabelSelectorRequirement {
	all = slices.DeleteFunc(all, func(r metav1.LabelSelectorRequirement) bool { return len(r.Values) > maxSharedValues })
	return all[:min(len(all), maxSharedRequirements)]
}

// eitherOf are requirements that labels meet if they meet all of a, or all of b.
func eitherOf(a, b []metav1.LabelSelectorRequirement) (all []metav1.LabelSelectorRequirement) {
	for _, one := range a {
		for _, other := range b {
			r, ok := either(one, other)
			if ok && !slices.ContainsFunc(all, func(known metav1.LabelSelectorRequirement) bool {
				return known.Key == r.Key && known.Operator == r.Operator && slices.Equal(known.Values, r.Values)
			}) {
				all = append(all, r)
			}
		}
	}
	return counting(all)
}

// either is a requirement that labels meet if they meet a or b; ok is false if each label does.
func either(a, b metav1.LabelSelectorRequirement) (r metav1.LabelSelectorRequirement, ok bool) {
	const in, notIn, exists, absent = metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist
	if a.Key != b.Key {
		return r, false
	}
	without := func(values, others []string) []string {
		return slices.DeleteFunc(slices.Clone(values), func(v string) bool { return slices.Contains(others, v) })
	}
	requires := func(operator metav1.LabelSelectorOperator, values []string) (metav1.LabelSelectorRequirement, bool) {
		slices.Sort(values)
		required := len(values) > 0 || operator == exists || operator == absent
		return metav1.LabelSelectorRequirement{Key: a.Key, Operator: operator, Values: slices.Compact(values)}, required
	}
	switch of := [2]metav1.LabelSelectorOperator{a.Operator, b.Operator}; of {
	case [2]metav1.LabelSelectorOperator{in, in}:
		return requires(in, slices.Concat(a.Values, b.Values))
	case [2]metav1.LabelSelectorOperator{notIn, notIn}:
		return requires(notIn, without(a.Values, without(a.Values, b.Values)))
	case [2]metav1.LabelSelectorOperator{in, notIn}:
		return requires(notIn, without(b.Values, a.Values))
	case [2]metav1.LabelSelectorOperator{notIn, absent}:
		return requires(notIn, slices.Clone(a.Values))
	case [2]metav1.LabelSelectorOperator{exists, exists}, [2]metav1.LabelSelectorOperator{in, exists}:
		return requires(exists, nil)
	case [2]metav1.LabelSelectorOperator{absent, absent}:
		return requires(absent, nil)
	case [2]metav1.LabelSelectorOperator{notIn, in}, [2]metav1.LabelSelectorOperator{absent, notIn}, [2]metav1.LabelSelectorOperator{exists, in}:
		return either(b, a)
	}
	return r, false
}
