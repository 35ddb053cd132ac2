package registration

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// maxDividing bounds the requirements by which namespaces are divided: each makes an entry more. Of a selector with more the first ones
// divide, so that the fail-closed entry is wider.
const maxDividing = 4

// byPolicy gives validating hooks entries of their own policy. A request may belong to both.
func (p *planner) byPolicy(stage admissionv1.Stage, hooks []*match.Hook) []entry {
	of := func(name string, hooks []*match.Hook) entry {
		return p.entry(entry{stage: stage, name: name, hooks: hooks, atoms: p.writtenBy(hooks), namespaces: namespacesOf(hooks)}, p.covered(hooks))
	}
	failClosed, failOpen := partition(hooks)
	var entries []entry
	for _, group := range p.groups(failClosed) {
		e, always := p.alwaysFailOpen(of(match.EntryFailClosed, group))
		entries = append(entries, e, always)
	}
	return inUse(append(entries, of(match.EntryFailOpen, failOpen))...)
}

// byRequest divides the requests of mutating hooks by their outcome when the mesh does not answer: every entry has the whole chain
// of its requests. Requests that rules of fail-closed hooks cover fail closed in the namespaces that these hooks may select. In other
// namespaces they fail open, for fail-open hooks alone, and so do all other requests.
func (p *planner) byRequest(stage admissionv1.Stage, hooks []*match.Hook) []entry {
	failClosed, failOpen := partition(hooks)
	entries, elsewhere := []entry(nil), []entry{p.rest(stage, failOpen, p.covered(failClosed))}
	for _, group := range p.groups(failClosed) {
		closed := p.covered(group)
		d := p.divide(group, failOpen, closed)
		for _, part := range d.closed {
			part.stage, part.name = stage, match.EntryFailClosed
			part.hooks = keep(hooks, func(h *match.Hook) bool { return slices.ContainsFunc(p.reach[h], closed.overlaps) })
			e, always := p.alwaysFailOpen(p.unconverted(part, closed))
			entries = append(entries, e, always)
		}
		for _, part := range d.elsewhere {
			part.stage, part.name = stage, match.EntryFailOpen
			elsewhere = append(elsewhere, p.unconverted(part, closed))
		}
	}
	return inUse(append(entries, elsewhere...)...)
}

// unconverted completes an entry for requests that fail-closed hooks cover. Its rules name each version that a hook names, so that the API
// server does not convert it.
func (p *planner) unconverted(e entry, closed atomSet) entry {
	e = p.entry(e, closed)
	names := newAtomSet(p.writtenBy(e.hooks))
	e.atoms = append(e.atoms, keep(p.brought(e), func(a atom) bool { return closed.covers(a) && names.covers(a) })...)
	return e
}

// division divides the requests that fail-closed hooks cover by namespace. Each request comes by one entry. The entries have atoms and
// namespaces; the entries in elsewhere have hooks too.
type division struct {
	closed, elsewhere []entry
}

// divide divides the requests that fail-closed hooks cover. There is one entry, as long as no fail-open hook wants any of them in other
// namespaces.
//
// A label of a namespace may change between two entries that an API server asks about it. So all fail-closed hooks share one entry for
// the requests that they may select: it brings a request exactly if the API server alone would call a fail-closed hook for it. Only a
// fail-open hook may miss a request, or be called again. Labels of the object do not divide: hooks change them between two entries.
func (p *planner) divide(failClosed, failOpen []*match.Hook, closed atomSet) division {
	all := entry{atoms: p.writtenBy(failClosed), namespaces: namespacesOf(failClosed)}
	selected := dividing(all.namespaces)
	others := keep(failOpen, func(h *match.Hook) bool {
		return slices.ContainsFunc(p.reach[h], closed.overlaps) && slices.ContainsFunc(selected, func(r metav1.LabelSelectorRequirement) bool { return !asks(h, r) })
	})
	switch {
	case len(selected) == 0 || len(others) == 0:
		return division{closed: []entry{all}}
	case p.most < config.MaxCombinations: // there is no room for more entries
		all.namespaces = namespacesOf(slices.Concat(failClosed, others))
		return division{closed: []entry{all}}
	}
	wanted := p.reachedBy(others)
	outside := keep(wanted, closed.covers)
	outside = append(outside, closed.common(keep(wanted, func(a atom) bool { return !closed.covers(a) }))...)
	namespaced, clusterWide := keep(outside, isNamespaced), namespacesAmong(outside)
	all.namespaces = &metav1.LabelSelector{MatchExpressions: selected}
	byName := keep(selected, isAboutName)
	if len(clusterWide) == 0 || len(byName) == len(selected) {
		return division{closed: []entry{all}, elsewhere: p.elsewhere(append(namespaced, clusterWide...), selected, others)}
	}
	// Hooks change the labels of a Namespace that is written, but for its name: so that divides these.
	inside, beside := all, all
	inside.atoms = keep(all.atoms, isNamespaced)
	beside.atoms = keep(all.atoms, func(a atom) bool { return !isNamespaced(a) })
	beside.namespaces = &metav1.LabelSelector{MatchExpressions: byName}
	return division{
		closed:    []entry{inside, beside},
		elsewhere: append(p.elsewhere(namespaced, selected, others), p.elsewhere(clusterWide, byName, others)...),
	}
}

// reachedBy are the requests of hooks, each once: also those in versions that their rules do not name, and the mesh converts.
func (p *planner) reachedBy(hooks []*match.Hook) []atom {
	all, seen := p.writtenBy(hooks), map[atom]bool{}
	named := newAtomSet(all)
	for _, h := range hooks {
		for _, a := range p.reach[h] {
			if !seen[a] && !named.covers(a) {
				seen[a], all = true, append(all, a)
			}
		}
	}
	return all
}

// elsewhere are the entries of fail-open hooks for requests outside of the selected namespaces.
func (p *planner) elsewhere(atoms []atom, selected []metav1.LabelSelectorRequirement, others []*match.Hook) []entry {
	var entries []entry
	for _, requirements := range elsewhere(selected) {
		namespaces := namespacesOf(others)
		namespaces.MatchExpressions = append(namespaces.MatchExpressions, requirements...)
		if !contradict(requirementsOf(namespaces)) {
			entries = append(entries, entry{hooks: others, atoms: atoms, namespaces: namespaces})
		}
	}
	return entries
}

// dividing are the requirements of a selector by which namespaces are divided, first its requirements of names.
func dividing(s *metav1.LabelSelector) []metav1.LabelSelectorRequirement {
	all := requirementsOf(s)
	all = append(keep(all, isAboutName), keep(all, func(r metav1.LabelSelectorRequirement) bool { return !isAboutName(r) })...)
	return all[:min(len(all), maxDividing)]
}

func isNamespaced(a atom) bool { return a[dimScope] == scopes()[1] }

// namespacesAmong are the requests for Namespaces among the atoms: of the requests of cluster scope, a namespaceSelector decides about
// these alone. The others come by each entry whose rules cover them.
func namespacesAmong(list []atom) []atom {
	const namespaces = "namespaces"
	var all []atom
	for _, a := range list {
		resource, sub := splitResource(a[dimResource])
		if isNamespaced(a) || resource != wildcard && resource != namespaces {
			continue
		}
		if a[dimResource] = namespaces; sub != "" {
			a[dimResource] += "/" + sub
		}
		all = append(all, a)
	}
	return all
}
