package registration

import (
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// wildcard stands for everything in a rule.
const wildcard = "*"

// The dimensions of a rule, in the order in which rules are sorted. They are merged from the last to the first: people most often
// write several operations into one rule.
const (
	dimGroup = iota
	dimVersion
	dimResource
	dimScope
	dimOperation
	dimensions
)

// cube is a rule as one sorted set of words per dimension: the requests of every combination.
type cube [dimensions][]string

// wider are rules of at most so many combinations each, by the lengths of their lists, that cover the requests of rules and more. A
// rule gets wildcards for its versions first, then for its groups, then for its resources: then it has as few combinations as it can.
func wider(rules []admissionregistrationv1.RuleWithOperations, most int) []admissionregistrationv1.RuleWithOperations {
	rules = slices.Clone(rules)
	for i := range rules {
		over := func() bool { return match.Combinations(rules[i:i+1]) > most }
		if r := &rules[i]; over() {
			if r.APIVersions = []string{wildcard}; over() {
				r.APIGroups = []string{wildcard}
			}
			if over() {
				r.Resources = widerResources(r.Resources)
			}
		}
	}
	return rules
}

// widerResources are a wildcard for resources, and those among them that it does not cover.
func widerResources(resources []string) []string {
	wide := []string{wildcard}
	for _, r := range resources {
		resource, sub := splitResource(r)
		if sub != "" {
			wide[0] = wildcard + "/" + wildcard
		}
		if every := resource + "/" + wildcard; namedOnly(atom{dimGroup: wildcard, dimResource: r}) && !slices.Contains(wide, every) {
			wide = append(wide, every)
		}
	}
	return wide
}

// atoms splits rules; it expands wildcards in operations and scopes.
func atoms(rules []admissionregistrationv1.RuleWithOperations) []atom {
	var all []atom
	for _, r := range rules {
		all = append(all, newCube(r).split()...)
	}
	return all
}

// Operations are all operations, in the order in which people write them.
func Operations() []admissionregistrationv1.OperationType {
	return []admissionregistrationv1.OperationType{
		admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete, admissionregistrationv1.Connect,
	}
}

// scopes are the scopes that a request can have.
func scopes() []string {
	return []string{string(admissionregistrationv1.ClusterScope), string(admissionregistrationv1.NamespacedScope)}
}

func newCube(r admissionregistrationv1.RuleWithOperations) cube {
	c := cube{dimGroup: r.APIGroups, dimVersion: r.APIVersions, dimResource: r.Resources}
	for _, o := range Operations() {
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
	for _, o := range Operations() {
		if slices.Contains(c[dimOperation], string(o)) {
			r.Operations = append(r.Operations, o)
		}
	}
	return r
}

// rules puts atoms together to few rules that cover the same requests, in a stable order. No rule holds a word beside a
// wildcard that stands for it, which Kubernetes would refuse: the atom of such a word is covered, and left out.
func rules(list []atom) []admissionregistrationv1.RuleWithOperations {
	set := newAtomSet(list)
	var cubes []cube
	for _, a := range set.list() {
		if set.coversWidely(a) {
			continue
		}
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
			c[dimension] = slices.Clone(c[dimension])
			merged = append(merged, c)
			continue
		}
		merged[i][dimension] = append(merged[i][dimension], c[dimension]...)
	}
	for i := range merged {
		slices.Sort(merged[i][dimension])
		merged[i][dimension] = slices.Compact(merged[i][dimension])
	}
	return merged
}

// but is a text that is the same for cubes that are the same but for one dimension, and for no others.
func (c cube) but(dimension int) string {
	var text strings.Builder
	for d, words := range c {
		if d == dimension {
			continue
		}
		for _, word := range words {
			text.WriteString(strconv.Itoa(len(word)) + ":" + word)
		}
		text.WriteByte(';')
	}
	return text.String()
}
