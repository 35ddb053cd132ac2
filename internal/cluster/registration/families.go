package registration

import (
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// maxPaths bounds the ways to reach resources that have several, as far as a plan knows them. Of resources beyond it the plan takes each
// version for another resource: no hook loses a request by that, and mutating entries may share requests.
const maxPaths = config.MaxTotalCombinations

// families are the resources that are the same in several versions or groups. All members of a family have one name: Kubernetes makes no
// others. They are atoms without scope and operation: requests of any are the same if their resources are.
type families struct {
	members [][]atom
	of      map[atom][]int // the families of a member
	set     atomSet        // of all members
}

// newFamilies makes a family of each resource. tooMany means that hooks name more versions than a plan has room for.
func (p *planner) newFamilies(hooks []*match.Hook) (f families, tooMany bool) {
	all, tooMany := p.withNamed(pathsOf(p.options.Equivalents), hooks)
	f.of = map[atom][]int{}
	var list []atom
	for _, paths := range all {
		if len(paths) < 2 {
			continue
		}
		for _, a := range paths {
			f.of[a] = append(f.of[a], len(f.members))
		}
		f.members, list = append(f.members, paths), append(list, paths...)
	}
	f.set = newAtomSet(list)
	return f, tooMany
}

// pathsOf are the known ways to reach each resource, as atoms without scope and operation.
func pathsOf(known Equivalents) [][]atom {
	if known == nil {
		return nil
	}
	var all [][]atom
	room := maxPaths
	for _, ways := range known.Families() {
		if room -= max(len(ways)-1, 0); room < 0 {
			break
		}
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
func (p *planner) withNamed(all [][]atom, hooks []*match.Hook) (_ [][]atom, tooMany bool) {
	names, known := p.namesIn(hooks), len(all)
	room := maxPaths
	listed := map[atom]bool{}
	for _, paths := range all {
		room -= len(paths) - 1
		for _, a := range paths {
			listed[a.inVersion("")] = true
		}
	}
	for _, name := range names {
		if resource := name.inVersion(""); !name.wild() && !listed[resource] {
			listed[resource] = true
			all = append(all, []atom{name})
		}
	}
	equivalent := newAtomSet(inAllVersions(p.namesIn(keep(hooks, isEquivalent))))
	exact := newAtomSet(inAllVersions(p.namesIn(keep(hooks, func(h *match.Hook) bool { return !isEquivalent(h) }))))
	versions := versionsOf(names)
	for i, paths := range all {
		if i >= known || slices.ContainsFunc(paths, equivalent.covers) && slices.ContainsFunc(paths, exact.covers) {
			all[i] = versions.add(paths, &room)
		}
	}
	return all, room < 0
}

// namesIn are the resources that rules of hooks name, without scope and operation, each once and in order.
func (p *planner) namesIn(hooks []*match.Hook) []atom {
	names := map[atom]bool{}
	for _, h := range hooks {
		for _, a := range p.written[h] {
			names[a.with("", "")] = true
		}
	}
	return slices.SortedFunc(maps.Keys(names), compareAtoms)
}

func (a atom) inVersion(version string) atom {
	a[dimVersion] = version
	return a
}

func inAllVersions(names []atom) []atom {
	for i := range names {
		names[i][dimVersion] = wildcard
	}
	return names
}

// namedVersions are the versions that names have for a resource, or for resources by wildcards.
type namedVersions struct {
	of        map[atom][]string // in order; an atom without version
	resources atomSet           // the same atoms
}

func versionsOf(names []atom) namedVersions {
	v := namedVersions{of: map[atom][]string{}}
	var resources []atom
	for _, name := range names {
		if resource := name.inVersion(""); name[dimVersion] != wildcard {
			v.of[resource], resources = append(v.of[resource], name[dimVersion]), append(resources, resource)
		}
	}
	v.resources = newAtomSet(resources)
	return v
}

// add returns the ways to reach a resource, and those in the versions that names have for it, as far as there is room: that is less than 0
// where some are left out.
func (v namedVersions) add(paths []atom, room *int) []atom {
	all, seen := slices.Clone(paths), map[atom]bool{}
	for _, a := range paths {
		seen[a] = true
	}
	for _, a := range paths {
		resource := a.inVersion("")
		if seen[resource] {
			continue
		}
		seen[resource] = true
		for _, as := range v.resources.shapes {
			name := resource.blank(as)
			if !name.covers(resource) {
				continue
			}
			for _, version := range v.of[name] {
				if more := a.inVersion(version); !seen[more] {
					if *room--; *room < 0 {
						return all
					}
					seen[more], all = true, append(all, more)
				}
			}
		}
	}
	return all
}

// met are the families of which an atom covers members. An atom with wildcards for both group and version covers all members of those, so
// that they do not matter.
func (f *families) met(a atom) []int {
	a = a.with("", "")
	switch {
	case a[dimGroup] == wildcard && a[dimVersion] == wildcard:
		return nil
	case !a.wild():
		return f.of[a]
	}
	var met []int
	for _, member := range f.set.under(place{a.shape(), a}) {
		met = append(met, f.of[member]...)
	}
	return met
}

// with is the atom with a scope and an operation.
func (a atom) with(scope, operation string) atom {
	a[dimScope], a[dimOperation] = scope, operation
	return a
}

// familyRequests are the requests of one family with a scope and an operation.
type familyRequests struct {
	family           int
	scope, operation string
}

// requestsLike are the requests that are the same as some of an atom.
func (f *families) requestsLike(a atom) []familyRequests {
	var all []familyRequests
	for _, i := range f.met(a) {
		all = append(all, familyRequests{i, a[dimScope], a[dimOperation]})
	}
	return all
}

func (f *families) atomsOf(r familyRequests) []atom {
	all := slices.Clone(f.members[r.family])
	for i := range all {
		all[i] = all[i].with(r.scope, r.operation)
	}
	return slices.DeleteFunc(all, excluded)
}

// equivalents are the requests that are the same as some of the atoms.
func (f *families) equivalents(list []atom) []atom {
	met := map[familyRequests]bool{}
	var all []atom
	for _, a := range list {
		for _, r := range f.requestsLike(a) {
			if !met[r] {
				met[r] = true
				all = append(all, f.atomsOf(r)...)
			}
		}
	}
	return all
}

// sameWhere reports whether an equivalent of some request of an atom passes.
func (f *families) sameWhere(passes func(atom) bool) func(atom) bool {
	known := map[familyRequests]bool{}
	return func(a atom) bool {
		return slices.ContainsFunc(f.requestsLike(a), func(r familyRequests) bool {
			if _, ok := known[r]; !ok {
				known[r] = slices.ContainsFunc(f.atomsOf(r), passes)
			}
			return known[r]
		})
	}
}

func (p *planner) covered(hooks []*match.Hook) atomSet {
	var all []atom
	for _, h := range hooks {
		all = append(all, p.reach[h]...)
	}
	return newAtomSet(all)
}

func (p *planner) writtenBy(hooks []*match.Hook) []atom {
	var all []atom
	for _, h := range hooks {
		all = append(all, p.written[h]...)
	}
	return all
}

func isEquivalent(h *match.Hook) bool { return h.MatchPolicy == admissionregistrationv1.Equivalent }
