package registration

import (
	"maps"
	"slices"
	"strings"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// atom is the smallest rule: one word per dimension. Operation and scope are concrete; group, version and the two halves
// of the resource may be wildcards.
type atom [dimensions]string

// covers reports whether a covers every request of b.
func (a atom) covers(b atom) bool {
	ar, as := splitResource(a[dimResource])
	br, bs := splitResource(b[dimResource])
	return a[dimOperation] == b[dimOperation] && a[dimScope] == b[dimScope] &&
		within(b[dimGroup], a[dimGroup]) && within(b[dimVersion], a[dimVersion]) && within(br, ar) && within(bs, as) &&
		(ar == br || !namedOnly(b))
}

// wild reports whether the atom may cover others than itself.
func (a atom) wild() bool { return a.shape() != shape{} }

func within(name, in string) bool { return in == wildcard || in == name }

func meet(a, b string) bool { return a == wildcard || b == wildcard || a == b }

// splitResource is splitResource of k8s.io/apiserver's predicates/rules: "pods" is the resource itself, "pods/*" also its
// subresources, "*" every resource without subresources (SEMANTICS C15).
func splitResource(s string) (resource, sub string) {
	resource, sub, _ = strings.Cut(s, "/")
	return resource, sub
}

func compareAtoms(a, b atom) int { return slices.Compare(a[:], b[:]) }

// shape marks the parts of an atom that are wildcards.
type shape struct{ group, version, resource, sub bool }

func (a atom) shape() shape {
	resource, sub := splitResource(a[dimResource])
	return shape{a[dimGroup] == wildcard, a[dimVersion] == wildcard, resource == wildcard, sub == wildcard}
}

// blank is the atom with the wildcards of a shape, beside its own.
func (a atom) blank(s shape) atom {
	if s.group {
		a[dimGroup] = wildcard
	}
	if s.version {
		a[dimVersion] = wildcard
	}
	if !s.resource && !s.sub {
		return a
	}
	resource, sub := splitResource(a[dimResource])
	if s.resource {
		resource = wildcard
	}
	if s.sub {
		sub = wildcard
	}
	if a[dimResource] = resource; sub != "" {
		a[dimResource] += "/" + sub
	}
	return a
}

// atomSet is the requests of some atoms. A query for an atom costs a look-up for each of 16 shapes and the atoms of its answer: it does not
// walk the set.
type atomSet struct {
	all    map[atom]bool
	shapes []shape
	// blanked has the atoms of the set by their rest without the parts of a shape; a shape is there once it was asked for.
	blanked map[shape]map[atom][]atom
}

func newAtomSet(list []atom) atomSet {
	s := atomSet{all: make(map[atom]bool, len(list)), blanked: map[shape]map[atom][]atom{}}
	for _, a := range list {
		if as := a.shape(); !s.all[a] && !slices.Contains(s.shapes, as) {
			s.shapes = append(s.shapes, as)
		}
		s.all[a] = true
	}
	return s
}

// list are the atoms of the set, each once, in order.
func (s atomSet) list() []atom { return slices.SortedFunc(maps.Keys(s.all), compareAtoms) }

// covers reports whether one atom of the set covers a.
func (s atomSet) covers(a atom) bool { return s.all[a] || s.coversWidely(a) }

// coversWidely reports whether another atom of the set than a covers it.
func (s atomSet) coversWidely(a atom) bool {
	return slices.ContainsFunc(s.shapes, func(as shape) bool {
		w := a.blank(as)
		return w != a && s.all[w] && w.covers(a)
	})
}

// overlaps reports whether the set covers a request of a.
func (s atomSet) overlaps(a atom) bool {
	return s.covers(a) || slices.ContainsFunc(s.places(a), func(at place) bool { return len(s.under(at)) > 0 })
}

// place is a key into atomSet.blanked: a shape, and an atom without the parts of a shape.
type place struct {
	shape shape
	rest  atom
}

// places are the places with atoms of the set that overlap with a wild atom; none for another atom.
func (s atomSet) places(a atom) []place {
	if !a.wild() {
		return nil
	}
	resource, _ := splitResource(a[dimResource])
	named := match.NamedOnly(a[dimGroup], resource)
	var all []place
	for _, as := range s.shapes {
		if at := (place{a.shape(), a.blank(as)}); !(as.resource && named) && !slices.Contains(all, at) {
			all = append(all, at)
		}
	}
	return all
}

// under are the atoms of the set at a place.
func (s atomSet) under(at place) []atom {
	as := at.shape
	if s.blanked[as] == nil {
		s.blanked[as] = map[atom][]atom{}
		for b := range s.all {
			resource, _ := splitResource(b[dimResource])
			if left := b.blank(as); !(as.resource && match.NamedOnly(b[dimGroup], resource)) {
				s.blanked[as][left] = append(s.blanked[as][left], b)
			}
		}
	}
	return s.blanked[as][at.rest]
}

// common are the atoms of the set that overlap with wild atoms of a list, in any order. It visits each atom a few times, however long the
// list is.
func (s atomSet) common(list []atom) []atom {
	seen, all := map[place]bool{}, map[atom]bool{}
	for _, a := range list {
		for _, at := range s.places(a) {
			if seen[at] {
				continue
			}
			seen[at] = true
			for _, b := range s.under(at) {
				all[b] = true
			}
		}
	}
	return slices.Collect(maps.Keys(all))
}
