package registration

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// wildcard stands for everything in a rule.
const wildcard = "*"

// The dimensions of a rule, in the order in which rules are sorted. They are merged from the last to the first: what
// people write into one rule first of all is several operations.
const (
	dimGroup = iota
	dimVersion
	dimResource
	dimScope
	dimOperation
	dimensions
)

// atom is the smallest rule: one word per dimension. Operation and scope are concrete; group, version and the two halves
// of the resource may be wildcards.
type atom [dimensions]string

// cube is a rule as one sorted set of words per dimension: the requests of every combination.
type cube [dimensions][]string

// covers reports whether every request of b is one of a.
func (a atom) covers(b atom) bool {
	ar, as := splitResource(a[dimResource])
	br, bs := splitResource(b[dimResource])
	return a[dimOperation] == b[dimOperation] && a[dimScope] == b[dimScope] &&
		within(b[dimGroup], a[dimGroup]) && within(b[dimVersion], a[dimVersion]) && within(br, ar) && within(bs, as) &&
		(ar == br || !namedOnly(b))
}

// overlaps reports whether some request is one of both.
func (a atom) overlaps(b atom) bool {
	ar, as := splitResource(a[dimResource])
	br, bs := splitResource(b[dimResource])
	return a[dimOperation] == b[dimOperation] && a[dimScope] == b[dimScope] &&
		meet(a[dimGroup], b[dimGroup]) && meet(a[dimVersion], b[dimVersion]) && meet(ar, br) && meet(as, bs) &&
		(ar == br || !match.NamedOnly(b[dimGroup], br) && !match.NamedOnly(a[dimGroup], ar))
}

// wild reports whether the atom may cover others than itself.
func (a atom) wild() bool {
	return a[dimGroup] == wildcard || a[dimVersion] == wildcard || strings.Contains(a[dimResource], wildcard)
}

func within(name, in string) bool { return in == wildcard || in == name }

func meet(a, b string) bool { return a == wildcard || b == wildcard || a == b }

// splitResource is splitResource of k8s.io/apiserver's predicates/rules: "pods" is the resource itself, "pods/*" also its
// subresources, "*" every resource without subresources (SEMANTICS C15).
func splitResource(s string) (resource, sub string) {
	resource, sub, _ = strings.Cut(s, "/")
	return resource, sub
}

// atomSet is the requests of some atoms.
type atomSet struct {
	all  map[atom]bool
	wild []atom
}

func newAtomSet(list []atom) atomSet {
	s := atomSet{all: make(map[atom]bool, len(list))}
	for _, a := range list {
		if a.wild() && !s.all[a] {
			s.wild = append(s.wild, a)
		}
		s.all[a] = true
	}
	return s
}

// covers reports whether one atom of the set covers a.
func (s atomSet) covers(a atom) bool {
	return s.all[a] || slices.ContainsFunc(s.wild, func(w atom) bool { return w.covers(a) })
}

// overlaps reports whether some request of a is one of the set.
func (s atomSet) overlaps(a atom) bool { return s.covers(a) || len(s.common(a)) > 0 }

// common are the atoms of the set that overlap with a, which it does not cover, in any order.
func (s atomSet) common(a atom) []atom {
	if !a.wild() {
		return nil
	}
	var all []atom
	for b := range s.all {
		if b.overlaps(a) {
			all = append(all, b)
		}
	}
	return all
}

// atoms takes rules apart; operations and scopes become what their wildcards stand for.
func atoms(rules []admissionregistrationv1.RuleWithOperations) []atom {
	var all []atom
	for _, r := range rules {
		all = append(all, newCube(r).split()...)
	}
	return all
}

// operations are all operations, in the order in which people write them.
func operations() []admissionregistrationv1.OperationType {
	return []admissionregistrationv1.OperationType{
		admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete, admissionregistrationv1.Connect,
	}
}

// scopes are those that a request can have.
func scopes() []string {
	return []string{string(admissionregistrationv1.ClusterScope), string(admissionregistrationv1.NamespacedScope)}
}

func newCube(r admissionregistrationv1.RuleWithOperations) cube {
	c := cube{dimGroup: r.APIGroups, dimVersion: r.APIVersions, dimResource: r.Resources}
	for _, o := range operations() {
		if slices.Contains(r.Operations, o) || slices.Contains(r.Operations, admissionregistrationv1.OperationAll) {
			c[dimOperation] = append(c[dimOperation], string(o))
		}
	}
	c[dimScope] = scopes()
	if r.Scope != nil && *r.Scope != admissionregistrationv1.AllScopes {
		c[dimScope] = []string{string(*r.Scope)}
	}
	return c
}

// split are the combinations of a cube.
func (c cube) split() []atom {
	split := []atom{{}}
	for d, words := range c {
		var next []atom
		for _, a := range split {
			for _, word := range words {
				a[d] = word
				next = append(next, a)
			}
		}
		split = next
	}
	return split
}

// rule is a cube as Kubernetes writes it.
func (c cube) rule() admissionregistrationv1.RuleWithOperations {
	scope := admissionregistrationv1.AllScopes
	if len(c[dimScope]) == 1 {
		scope = admissionregistrationv1.ScopeType(c[dimScope][0])
	}
	r := admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{
		APIGroups: c[dimGroup], APIVersions: c[dimVersion], Resources: c[dimResource], Scope: &scope,
	}}
	for _, o := range operations() {
		if slices.Contains(c[dimOperation], string(o)) {
			r.Operations = append(r.Operations, o)
		}
	}
	return r
}

// rules puts atoms together to few rules that cover the same requests, in a stable order. No rule holds a word beside a
// wildcard that stands for it, which Kubernetes would refuse: the atom of such a word is covered, and left out.
func rules(list []atom) []admissionregistrationv1.RuleWithOperations {
	var cubes []cube
	for _, a := range uncovered(list) {
		var c cube
		for d, word := range a {
			c[d] = []string{word}
		}
		cubes = append(cubes, c)
	}
	for d := dimensions - 1; d >= 0; d-- {
		cubes = merge(cubes, d)
	}
	slices.SortFunc(cubes, func(a, b cube) int { return slices.CompareFunc(a[:], b[:], slices.Compare) })
	var out []admissionregistrationv1.RuleWithOperations
	for _, c := range cubes {
		out = append(out, c.rule())
	}
	return out
}

// uncovered are the atoms that no other one covers, each once, in order.
func uncovered(list []atom) []atom {
	set := newAtomSet(list)
	left := slices.DeleteFunc(slices.Collect(maps.Keys(set.all)), func(a atom) bool {
		return slices.ContainsFunc(set.wild, func(w atom) bool { return w != a && w.covers(a) })
	})
	slices.SortFunc(left, compareAtoms)
	return left
}

func compareAtoms(a, b atom) int { return slices.Compare(a[:], b[:]) }

// merge joins the cubes that differ in one dimension alone, unless that would put a name beside a wildcard that does not stand
// for it.
func merge(cubes []cube, dimension int) []cube {
	wild := map[string]bool{}
	for _, c := range cubes {
		if dimension == dimResource && strings.HasPrefix(c[dimension][0], wildcard) {
			wild[c.but(dimension)] = true
		}
	}
	at := map[string]int{}
	var merged []cube
	for _, c := range cubes {
		key := c.but(dimension)
		if wild[key] && namedOnly(atom{dimGroup: c[dimGroup][0], dimResource: c[dimResource][0]}) {
			key += " named"
		}
		i, ok := at[key]
		if !ok {
			at[key] = len(merged)
			merged = append(merged, c)
			continue
		}
		words := append(slices.Clone(merged[i][dimension]), c[dimension]...)
		slices.Sort(words)
		merged[i][dimension] = slices.Compact(words)
	}
	return merged
}

// but is a text that is the same for cubes that are the same but for one dimension.
func (c cube) but(dimension int) string {
	c[dimension] = nil
	return fmt.Sprintf("%q", c)
}
