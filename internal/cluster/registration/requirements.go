package registration

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

const (
	// maxRequirements bounds the requirements of a selector that count where selectors are compared.
	maxRequirements = 64
	// maxComparedValues bounds the values of a requirement that is compared by its values: beyond it lists have to be the same.
	maxComparedValues = 128
)

// requirementsOf are the first maxRequirements requirements of a selector, which labels must all meet; none if it cannot be parsed.
func requirementsOf(s *metav1.LabelSelector) []metav1.LabelSelectorRequirement {
	if _, ok := canonical(s); s == nil || !ok {
		return nil
	}
	var all []metav1.LabelSelectorRequirement
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		all = append(all, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{s.MatchLabels[key]}})
	}
	all = append(all, s.MatchExpressions...)
	return all[:min(len(all), maxRequirements)]
}

// common are requirements that the namespaceSelector of each hook asks for.
func common(hooks []*match.Hook) []metav1.LabelSelectorRequirement {
	var all []metav1.LabelSelectorRequirement
	if names := leftOut(hooks); len(names) > 0 {
		all = append(all, nameRequirement(metav1.LabelSelectorOpNotIn, names))
	}
	lists := make([][]metav1.LabelSelectorRequirement, len(hooks))
	for i, h := range hooks {
		lists[i] = requirementsOf(h.EntryNamespaces())
	}
	for _, r := range lists[0] {
		if !impliesAny(all, r) && !slices.ContainsFunc(lists[1:], func(list []metav1.LabelSelectorRequirement) bool { return !impliesAny(list, r) }) {
			all = append(all, *r.DeepCopy())
		}
	}
	return all
}

// asks reports whether a single requirement of the hook's namespaceSelector implies r.
func asks(h *match.Hook, r metav1.LabelSelectorRequirement) bool {
	return impliesAny(requirementsOf(h.EntryNamespaces()), r)
}

func impliesAny(list []metav1.LabelSelectorRequirement, r metav1.LabelSelectorRequirement) bool {
	return slices.ContainsFunc(list, func(own metav1.LabelSelectorRequirement) bool { return implies(own, r) })
}

// implies reports whether labels that meet a meet b too. It may be false where they do.
func implies(a, b metav1.LabelSelectorRequirement) bool {
	const in, notIn, exists, absent = metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist
	if a.Key != b.Key {
		return false
	}
	switch {
	case a.Operator == b.Operator && slices.Equal(a.Values, b.Values):
		return true
	case b.Operator == exists:
		return a.Operator == in
	case a.Operator == absent:
		return b.Operator == notIn
	case max(len(a.Values), len(b.Values)) > maxComparedValues:
		return false
	case a.Operator == in && b.Operator == in:
		return !slices.ContainsFunc(a.Values, func(v string) bool { return !slices.Contains(b.Values, v) })
	case a.Operator == in && b.Operator == notIn:
		return !slices.ContainsFunc(a.Values, func(v string) bool { return slices.Contains(b.Values, v) })
	case a.Operator == notIn && b.Operator == notIn:
		return !slices.ContainsFunc(b.Values, func(v string) bool { return !slices.Contains(a.Values, v) })
	}
	return false
}

// not is the requirement that labels meet if and only if they do not meet r: NotIn and DoesNotExist include labels without the key.
func not(r metav1.LabelSelectorRequirement) metav1.LabelSelectorRequirement {
	r.Operator = map[metav1.LabelSelectorOperator]metav1.LabelSelectorOperator{
		metav1.LabelSelectorOpIn: metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpNotIn: metav1.LabelSelectorOpIn,
		metav1.LabelSelectorOpExists: metav1.LabelSelectorOpDoesNotExist, metav1.LabelSelectorOpDoesNotExist: metav1.LabelSelectorOpExists,
	}[r.Operator]
	return r
}

// elsewhere are lists of requirements. Labels that do not meet all of selected meet exactly one list; other labels meet none.
func elsewhere(selected []metav1.LabelSelectorRequirement) [][]metav1.LabelSelectorRequirement {
	var all [][]metav1.LabelSelectorRequirement
	for i, r := range selected {
		all = append(all, append(slices.Clone(selected[:i]), not(r)))
	}
	return all
}

// contradict reports whether no labels meet all of the requirements, as far as two of them show it.
func contradict(list []metav1.LabelSelectorRequirement) bool {
	return slices.ContainsFunc(list, func(r metav1.LabelSelectorRequirement) bool { return impliesAny(list, not(r)) })
}

// isAboutName reports whether the requirement is about the name of a namespace, which no write changes.
func isAboutName(r metav1.LabelSelectorRequirement) bool { return r.Key == corev1.LabelMetadataName }
