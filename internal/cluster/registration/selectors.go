package registration

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// namespaceSelector is a selector without the namespaces that are exempt in the cluster, and without the mesh's own.
func (p *planner) namespaceSelector(s *metav1.LabelSelector) *metav1.LabelSelector {
	s = s.DeepCopy()
	if exempt := p.exemptNamespaces(); len(exempt) > 0 {
		s.MatchExpressions = append(s.MatchExpressions, nameRequirement(metav1.LabelSelectorOpNotIn, exempt))
	}
	return s
}

func nameRequirement(operator metav1.LabelSelectorOperator, names []string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: corev1.LabelMetadataName, Operator: operator, Values: names}
}

// namespacesOf selects the namespaces that some of the hooks select, and perhaps others: by the selector that the hooks share, or else by
// the requirements that all their selectors have, and the names that all leave out.
func namespacesOf(hooks []*match.Hook) *metav1.LabelSelector {
	s := shared(hooks, (*match.Hook).EntryNamespaces)
	if len(hooks) > 1 && len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		s.MatchExpressions = common(hooks)
	}
	return s
}

// exemptNamespaces are the mesh's own namespace and the namespaces of the bypass, in order.
func (p *planner) exemptNamespaces() []string {
	var names []string
	if p.options.OwnNamespace != "" {
		names = append(names, p.options.OwnNamespace)
	}
	if p.bypass != nil {
		names = append(names, p.bypass.Namespaces...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// maxLeftOut bounds the work to find the names that all hooks leave out; beyond it none counts.
const maxLeftOut = 1_000_000

// leftOut are the namespaces that some hook leaves out by NotIn, and every hook by its name, in order.
func leftOut(hooks []*match.Hook) []string {
	var names []string
	for _, h := range hooks {
		for _, r := range aboutNames(h) {
			if r.Operator == metav1.LabelSelectorOpNotIn {
				names = append(names, r.Values...)
			}
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names)*len(hooks) > maxLeftOut {
		return nil
	}
	for _, h := range hooks {
		if len(names) == 0 {
			return nil
		}
		selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: aboutNames(h)})
		if err != nil {
			return nil
		}
		names = slices.DeleteFunc(names, func(name string) bool { return selector.Matches(labels.Set{corev1.LabelMetadataName: name}) })
	}
	return names
}

// aboutNames are the requirements of a hook on the name of a namespace, a label that each namespace has.
func aboutNames(h *match.Hook) []metav1.LabelSelectorRequirement {
	return keep(requirementsOf(h.EntryNamespaces()), func(r metav1.LabelSelectorRequirement) bool { return r.Key == corev1.LabelMetadataName })
}

func objectSelector(hooks []*match.Hook) *metav1.LabelSelector {
	return shared(hooks, (*match.Hook).ObjectSelector)
}

// shared is a copy of the selector that all hooks have; an empty selector when they differ. For mutating hooks that is right too: a
// request that it keeps out meets no hook, so no hook can change the request until another hook matches.
func shared(hooks []*match.Hook, of func(*match.Hook) *metav1.LabelSelector) *metav1.LabelSelector {
	everything := &metav1.LabelSelector{}
	if len(hooks) == 0 {
		return everything
	}
	first, ok := canonical(of(hooks[0]))
	if !ok || slices.ContainsFunc(hooks, func(h *match.Hook) bool {
		text, ok := canonical(of(h))
		return !ok || text != first
	}) {
		return everything
	}
	if s := of(hooks[0]); s != nil {
		return s.DeepCopy()
	}
	return everything
}

// canonical is a text that is the same for selectors that mean the same; false when the selector cannot be parsed.
func canonical(s *metav1.LabelSelector) (string, bool) {
	s = cmp.Or(s, &metav1.LabelSelector{})
	parsed, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return "", false
	}
	return parsed.String(), true
}
