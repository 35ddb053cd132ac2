package registration

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// namespaceSelector is the selector that all hooks of an entry share, or else one without the namespaces that all of them leave out
// by name, without those that are exempt in the cluster, and without the mesh's own.
func (p *planner) namespaceSelector(hooks []*match.Hook) *metav1.LabelSelector {
	s := shared(hooks, (*match.Hook).NamespaceSelector)
	if names := leftOut(hooks); len(s.MatchLabels)+len(s.MatchExpressions) == 0 && len(names) > 0 {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: names,
		})
	}
	if exempt := p.exemptNamespaces(); len(exempt) > 0 {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: exempt,
		})
	}
	return s
}

// exemptNamespaces are the mesh's own namespace and those of the bypass, in order.
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
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		return slices.ContainsFunc(hooks, func(h *match.Hook) bool {
			return selects(&metav1.LabelSelector{MatchExpressions: aboutNames(h)}, labels.Set{corev1.LabelMetadataName: name})
		})
	})
}

// aboutNames are what a hook asks of the name of a namespace, which is a label that no namespace can do without.
func aboutNames(h *match.Hook) []metav1.LabelSelectorRequirement {
	s := h.NamespaceSelector()
	if _, ok := canonical(s); s == nil || !ok {
		return nil
	}
	all := keep(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return r.Key == corev1.LabelMetadataName })
	if name, ok := s.MatchLabels[corev1.LabelMetadataName]; ok {
		all = append(all, metav1.LabelSelectorRequirement{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{name}})
	}
	return all
}

func objectSelector(hooks []*match.Hook) *metav1.LabelSelector {
	return shared(hooks, (*match.Hook).ObjectSelector)
}

// shared is a copy of the selector that all hooks have; one that selects everything when they differ. For mutating hooks
// that is right too: a request that it keeps out would meet no hook that could change it so that another matches.
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
	if s == nil {
		s = &metav1.LabelSelector{}
	}
	parsed, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return "", false
	}
	return parsed.String(), true
}
