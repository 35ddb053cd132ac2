package registration

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// families are the requests that are the same in several versions or groups.
type families [][]atom

// newFamilies makes a family of each resource with each operation and scope.
func newFamilies(known Equivalents, hooks []*match.Hook) families {
	var all families
	for _, paths := range withNamed(pathsOf(known), hooks) {
		if len(paths) < 2 {
			continue
		}
		for _, operation := range operations() {
			for _, scope := range scopes() {
				members := slices.Clone(paths)
				for i := range members {
					members[i][dimScope], members[i][dimOperation] = scope, string(operation)
				}
				all = append(all, members)
			}
		}
	}
	return all
}

// pathsOf are the known ways to reach each resource, as atoms without scope and operation.
func pathsOf(known Equivalents) [][]atom {
	if known == nil {
		return nil
	}
	var all [][]atom
	for _, ways := range known.Families() {
		paths := make([]atom, len(ways))
		for i, way := range ways {
			resource := way.Resource.Resource
			if way.Subresource != "" {
				resource += "/" + way.Subresource
			}
			paths[i] = atom{dimGroup: way.Resource.Group, dimVersion: way.Resource.Version, dimResource: resource}
		}
		all = append(all, paths)
	}
	return all
}

// withNamed adds versions that hooks name and that discovery does not list: of unknown resources, since in
// one group a name is one resource in whatever version; and of those that hooks of both match policies name, so that a
// cluster that learns to serve one more version sends it to where a hook waits for it.
func withNamed(all [][]atom, hooks []*match.Hook) [][]atom {
	names, known := namesIn(hooks), len(all)
	for _, name := range names {
		if !name.wild() && !slices.ContainsFunc(all, func(paths []atom) bool { return slices.ContainsFunc(paths, name.sameResource) }) {
			all = append(all, []atom{name})
		}
	}
	equivalent := newAtomSet(inAllVersions(namesIn(keep(hooks, isEquivalent))))
	exact := newAtomSet(inAllVersions(namesIn(keep(hooks, func(h *match.Hook) bool { return !isEquivalent(h) }))))
	for i, paths := range all {
		if i >= known || slices.ContainsFunc(paths, equivalent.covers) && slices.ContainsFunc(paths, exact.covers) {
			all[i] = inVersions(paths, names)
		}
	}
	return all
}

// namesIn are what the rules of hooks name, without scope and operation, each once and in order.
func namesIn(hooks []*match.Hook) []atom {
	names := writtenBy(hooks)
	for i := range names {
		names[i][dimScope], names[i][dimOperation] = "", ""
	}
	slices.SortFunc(names, compareAtoms)
	return slices.Compact(names)
}

func inAllVersions(names []atom) []atom {
	for i := range names {
		names[i][dimVersion] = wildcard
	}
	return names
}

// inVersions are the ways to reach a resource, and those in the versions that names have for it.
func inVersions(paths, names []atom) []atom {
	all := slices.Clone(paths)
	for _, name := range names {
		for _, a := range paths {
			a[dimVersion] = name[dimVersion]
			if name[dimVersion] != wildcard && name.covers(a) && !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
	}
	return all
}

func (a atom) sameResource(b atom) bool {
	a[dimVersion] = b[dimVersion]
	return a == b
}

// of are the members of the families that the set meets.
func (f families) of(set atomSet) []atom {
	var all []atom
	for _, members := range f {
		if slices.ContainsFunc(members, set.covers) {
			all = append(all, members...)
		}
	}
	return slices.DeleteFunc(all, excluded)
}

// reach are the requests that a hook is called for: those that its rules name and, with matchPolicy Equivalent, the
// equivalents of those (SEMANTICS C13).
func (f families) reach(h *match.Hook) []atom {
	all := written(h)
	if isEquivalent(h) {
		all = append(all, f.of(newAtomSet(all))...)
	}
	return all
}

func (p *planner) covered(hooks []*match.Hook) atomSet {
	var all []atom
	for _, h := range hooks {
		all = append(all, p.reach[h]...)
	}
	return newAtomSet(all)
}

// written are the requests that the rules of a hook name, less those that never come to the mesh.
func written(h *match.Hook) []atom {
	return slices.DeleteFunc(atoms(h.Rules()), excluded)
}

func writtenBy(hooks []*match.Hook) []atom {
	var all []atom
	for _, h := range hooks {
		all = append(all, written(h)...)
	}
	return all
}

func isEquivalent(h *match.Hook) bool { return h.MatchPolicy == admissionregistrationv1.Equivalent }
