package match

import (
	"fmt"
	"slices"
	"strings"
)

// precedence is a wish of a route: one initializer acts before another one. Both are positions in the order of the configurations.
type precedence struct {
	first, then int
	route       *RouteBinding
	field       string // of the route, which has the wish
}

// orderInitializers puts the initializers, which are the first hooks, in the order that their routes ask for, and lets initializers act at the same
// time where they may. Without a wish of the routes the order of the configurations stays.
func (c *compiler) orderInitializers() {
	count := 0
	for count < len(c.hooks) && c.hooks[count].Initializes() {
		count++
	}
	earlier := slices.Clone(c.hooks[:count])
	wishes := c.precedences(earlier)
	order, cycles := inOrder(count, wishes)
	for _, cycle := range cycles {
		c.findings = append(c.findings, cycleFindings(earlier, cycle)...)
	}
	batches := batches(order, wishes, func(i int) bool { return earlier[i].actsInParallel() })
	for to, from := range order {
		c.hooks[to] = earlier[from].at(to, batches[to])
	}
}

// actsInParallel reports whether an initializer may act at the same time as others: its route has parallel, and hosts serve it. A controller acts
// when its name is the first of the pending ones.
func (h *Hook) actsInParallel() bool { return h.Route.Parallel && h.Route.Stream && !h.Route.Shadow }

// batches numbers the initializers of an order that act at the same time, from 1 on; 0 marks an initializer that acts alone. The members of a batch
// are next to each other, all of them may act in parallel, and no wish orders two of them.
func batches(order []int, wishes []precedence, parallel func(int) bool) []int {
	numbers, latest := make([]int, len(order)), 0
	var members []int // of the latest batch
	for at, i := range order {
		apart := slices.ContainsFunc(wishes, func(w precedence) bool {
			return w.first == i && slices.Contains(members, w.then) || w.then == i && slices.Contains(members, w.first)
		})
		if apart || !parallel(i) {
			members = nil
		}
		if !parallel(i) {
			continue
		}
		if len(members) == 0 {
			latest++
		}
		members, numbers[at] = append(members, i), latest
	}
	return numbers
}

// at returns the hook at a position of the snapshot, and of a batch. compiled.from expects it at the position that it had.
func (h *Hook) at(ordinal, batch int) *Hook {
	if h.ordinal == ordinal && h.Batch == batch {
		return h
	}
	moved := *h
	moved.ordinal, moved.Batch = ordinal, batch
	return &moved
}

// precedences returns the wishes of the routes of initializers, and reports names that no initializer has.
func (c *compiler) precedences(initializers []*Hook) (wishes []precedence) {
	named, reported := map[string][]int{}, map[Finding]bool{}
	for i, h := range initializers {
		named[h.ID.Name] = append(named[h.ID.Name], i)
	}
	for i, h := range initializers {
		ask := func(field string, names []string, wish func(other int) precedence) {
			for _, name := range names {
				for _, other := range named[name] {
					wishes = append(wishes, wish(other))
				}
				unknown := c.routes.of(h.ID).finding(SeverityWarning, CodeInitializerOrder, field,
					fmt.Sprintf("there is no initializer %q: mend the name, or remove it", name))
				if len(named[name]) == 0 && !reported[unknown] { // several initializers may have one route
					reported[unknown] = true
					c.findings = append(c.findings, unknown)
				}
			}
		}
		route := c.routes.of(h.ID)
		ask(" spec.after", h.Route.After, func(other int) precedence { return precedence{other, i, route, " spec.after"} })
		ask(" spec.before", h.Route.Before, func(other int) precedence { return precedence{i, other, route, " spec.before"} })
	}
	return wishes
}

// inOrder returns an order of so many positions that grants the wishes, and has the lowest position first where they leave it open. Of the wishes
// that form a cycle none is granted.
func inOrder(count int, wishes []precedence) (order []int, cycles [][]precedence) {
	waits := make([][]precedence, count) // by the position that waits
	for _, w := range wishes {
		waits[w.then] = append(waits[w.then], w)
	}
	placed := make([]bool, count)
	for len(order) < count {
		next := ready(placed, waits)
		if next < 0 {
			cycles = append(cycles, takeCycle(slices.Index(placed, false), waits))
			continue
		}
		placed[next], order = true, append(order, next)
	}
	return order, cycles
}

// ready returns the lowest position that is not placed and waits for placed ones only; -1 if there is none. It drops wishes that are granted.
func ready(placed []bool, waits [][]precedence) int {
	for i := range placed {
		waits[i] = slices.DeleteFunc(waits[i], func(w precedence) bool { return placed[w.first] })
		if !placed[i] && len(waits[i]) == 0 {
			return i
		}
	}
	return -1
}

// takeCycle takes a cycle out of the wishes of positions that all wait, and returns it, from the last position of it to the first.
func takeCycle(at int, waits [][]precedence) []precedence {
	var path []precedence
	for {
		if begin := slices.IndexFunc(path, func(w precedence) bool { return w.then == at }); begin >= 0 {
			for _, w := range path[begin:] {
				waits[w.then] = waits[w.then][1:]
			}
			return path[begin:]
		}
		path = append(path, waits[at][0])
		at = waits[at][0].first
	}
}

// cycleFindings are a finding for each route with a wish of a cycle.
func cycleFindings(initializers []*Hook, cycle []precedence) (findings []Finding) {
	names := []string{initializers[cycle[0].then].ID.Name}
	for _, w := range cycle {
		names = append(names, initializers[w.first].ID.Name)
	}
	slices.Reverse(names)
	message := fmt.Sprintf("the order is a cycle, and is not kept: %s: remove a name from spec.after or spec.before of a route of these",
		strings.Join(names, " before "))
	for _, w := range cycle {
		if f := w.route.finding(SeverityError, CodeInitializerOrder, w.field, message); !slices.Contains(findings, f) {
			findings = append(findings, f)
		}
	}
	slices.SortFunc(findings, Finding.compare)
	return findings
}
