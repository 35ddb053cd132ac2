package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Edges forbids imports of some packages, with the reason.
type Edges struct {
	// From are the importing packages, as patterns: "./x" is a package of the module, "x/..." is x and all below.
	From []string
	// Except are packages that the rule does not bind although From names them.
	Except []string
	// Deny are the packages that may not be imported, as patterns; "std" is the standard library.
	Deny []string
	// Only, when set, are the only packages that may be imported beside the module's packages that From names.
	Only []string
	// Indirect extends the rule from the import statements to all that the package is built from.
	Indirect bool
	// Reason completes "may not be imported: ".
	Reason string
}

// CheckEdges returns a sentence for each import that a rule forbids, with the road that leads to it.
func CheckEdges(g *Graph, rules []Edges) []string {
	var violations []string
	for _, rule := range rules {
		for _, from := range g.own(rule.From, rule.Except) {
			violations = append(violations, g.checkEdges(rule, from)...)
		}
	}
	return violations
}

// checkEdges follows the imports of one package, breadth first, so that the road it reports is a shortest one. It does
// not look behind a forbidden package, nor behind the standard library.
func (g *Graph) checkEdges(rule Edges, from string) []string {
	var violations []string
	parent := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at != from && !rule.Indirect {
			continue
		}
		for _, next := range g.imports(at) {
			if _, seen := parent[next]; seen {
				continue
			}
			parent[next] = at
			switch {
			case rule.forbids(g, next):
				violations = append(violations, fmt.Sprintf("%s: %s", g.road(parent, next), rule.Reason))
			case !g.match("std", next):
				queue = append(queue, next)
			}
		}
	}
	return violations
}

// forbids tells whether the rule forbids to import the package.
func (r *Edges) forbids(g *Graph, path string) bool {
	if g.matchAny(r.Deny, path) {
		return true
	}
	return len(r.Only) > 0 && !g.matchAny(r.Only, path) && !g.matchAny(r.From, path)
}

// imports are the sorted imports of a package; none for a package that the graph does not hold.
func (g *Graph) imports(path string) []string {
	p, ok := g.Packages[path]
	if !ok {
		return nil
	}
	return slices.Sorted(slices.Values(p.Imports))
}

// road writes the imports from the start of the search to the package.
func (g *Graph) road(parent map[string]string, to string) string {
	var steps []string
	for at := to; at != ""; at = parent[at] {
		steps = append(steps, g.short(at))
	}
	slices.Reverse(steps)
	return strings.Join(steps, " -> ")
}
