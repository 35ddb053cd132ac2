package lint

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// demand is all requirements of a selector about one key together.
type demand struct {
	present, absent bool
	allowed         map[string]bool // values; nil allows every one
	forbidden       map[string]bool
}

// solve returns labels that a selector selects, the fewest there are; false when there are none. The keys in always have
// some value on whatever is selected. A selector that cannot be parsed is another one's finding, and selects everything
// here.
func solve(s *metav1.LabelSelector, always ...string) (labels.Set, bool) {
	s = cmp.Or(s, &metav1.LabelSelector{})
	if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
		return labels.Set{}, true
	}
	solution := labels.Set{}
	for key, d := range demands(s, always) {
		value, ok := d.solve()
		if !ok {
			return nil, false
		}
		if d.present {
			solution[key] = value
		}
	}
	return solution, true
}

// demands are the requirements of a selector, by key.
func demands(s *metav1.LabelSelector, always []string) map[string]*demand {
	all := map[string]*demand{}
	of := func(key string) *demand {
		if all[key] == nil {
			all[key] = &demand{forbidden: map[string]bool{}}
		}
		return all[key]
	}
	for key, value := range s.MatchLabels {
		of(key).in(value)
	}
	for _, r := range s.MatchExpressions {
		switch d := of(r.Key); r.Operator {
		case metav1.LabelSelectorOpIn:
			d.in(r.Values...)
		case metav1.LabelSelectorOpNotIn:
			for _, v := range r.Values {
				d.forbidden[v] = true
			}
		case metav1.LabelSelectorOpExists:
			d.present = true
		case metav1.LabelSelectorOpDoesNotExist:
			d.absent = true
		}
	}
	for _, key := range always {
		of(key).present = true
	}
	return all
}

// in narrows the allowed values.
func (d *demand) in(values ...string) {
	d.present = true
	narrowed := map[string]bool{}
	for _, v := range values {
		if d.allowed == nil || d.allowed[v] {
			narrowed[v] = true
		}
	}
	d.allowed = narrowed
}

// solve is a value that the demand is content with; false when there is none. It has no meaning unless the key is to be
// present.
func (d *demand) solve() (string, bool) {
	switch {
	case !d.present:
		return "", true // forbidden values included
	case d.absent:
		return "", false
	case d.allowed == nil:
		value := "sample"
		for i := 1; d.forbidden[value]; i++ {
			value = "sample-" + strconv.Itoa(i)
		}
		return value, true
	}
	for _, v := range slices.Sorted(maps.Keys(d.allowed)) {
		if !d.forbidden[v] {
			return v, true
		}
	}
	return "", false
}
