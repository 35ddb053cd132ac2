package policy

import (
	"maps"
	"slices"
	"strings"

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

// requirementsOf are the requirements of a selector that count, with sorted values. Labels must meet all of them.
func requirementsOf(s *metav1.LabelSelector) (all []metav1.LabelSelectorRequirement) {
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		all = append(all, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{s.MatchLabels[key]}})
	}
	for _, r := range s.MatchExpressions {
		r.Values = slices.Compact(slices.Sorted(slices.Values(r.Values)))
		all = append(all, r)
	}
	return counting(all)
}

// counting are the requirements within the bounds.
func counting(all []metav1.LabelSelectorRequirement) []metav1.LabelSelectorRequirement {
	all = slices.DeleteFunc(all, tooMany)
	return all[:min(len(all), maxSharedRequirements)]
}

func tooMany(r metav1.LabelSelectorRequirement) bool { return len(r.Values) > maxSharedValues }

// eitherOf are requirements that labels meet if they meet all of a, or all of b: the first that count.
func eitherOf(a, b []metav1.LabelSelectorRequirement) (all []metav1.LabelSelectorRequirement) {
	for _, one := range a {
		for _, other := range b {
			if len(all) == maxSharedRequirements {
				return all
			}
			r, ok := either(one, other)
			if ok && !tooMany(r) && !slices.ContainsFunc(all, func(known metav1.LabelSelectorRequirement) bool {
				return known.Key == r.Key && known.Operator == r.Operator && slices.Equal(known.Values, r.Values)
			}) {
				all = append(all, r)
			}
		}
	}
	return all
}

// combined are the values that stand in a alone, in both or in b alone, of sorted sets, in linear time: authors choose them.
func combined(a, b []string, inA, inBoth, inB bool) []string {
	out := make([]string, 0, len(a)+len(b))
	take := func(value string, taken bool) {
		if taken {
			out = append(out, value)
		}
	}
	for len(a) > 0 && len(b) > 0 {
		switch c := strings.Compare(a[0], b[0]); {
		case c < 0:
			take(a[0], inA)
			a = a[1:]
		case c > 0:
			take(b[0], inB)
			b = b[1:]
		default:
			take(a[0], inBoth)
			a, b = a[1:], b[1:]
		}
	}
	if inA {
		out = append(out, a...)
	}
	if inB {
		out = append(out, b...)
	}
	return out
}

// either is a requirement that labels meet if they meet a or b; ok is false if each label does.
func either(a, b metav1.LabelSelectorRequirement) (r metav1.LabelSelectorRequirement, ok bool) {
	const in, notIn, exists, absent = metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist
	if a.Key != b.Key {
		return r, false
	}
	requires := func(operator metav1.LabelSelectorOperator, values []string) (metav1.LabelSelectorRequirement, bool) {
		required := len(values) > 0 || operator == exists || operator == absent
		return metav1.LabelSelectorRequirement{Key: a.Key, Operator: operator, Values: values}, required
	}
	switch of := [2]metav1.LabelSelectorOperator{a.Operator, b.Operator}; of {
	case [2]metav1.LabelSelectorOperator{in, in}:
		return requires(in, combined(a.Values, b.Values, true, true, true))
	case [2]metav1.LabelSelectorOperator{notIn, notIn}:
		return requires(notIn, combined(a.Values, b.Values, false, true, false))
	case [2]metav1.LabelSelectorOperator{in, notIn}:
		return requires(notIn, combined(a.Values, b.Values, false, false, true))
	case [2]metav1.LabelSelectorOperator{notIn, absent}:
		return requires(notIn, a.Values)
	case [2]metav1.LabelSelectorOperator{exists, exists}, [2]metav1.LabelSelectorOperator{in, exists}:
		return requires(exists, nil)
	case [2]metav1.LabelSelectorOperator{absent, absent}:
		return requires(absent, nil)
	case [2]metav1.LabelSelectorOperator{notIn, in}, [2]metav1.LabelSelectorOperator{absent, notIn}, [2]metav1.LabelSelectorOperator{exists, in}:
		return either(b, a)
	}
	return r, false
}
