package config

// DecodeCache decodes the parts of a source, such as its files, and keeps the parts of the last call, so that a call costs
// only the changes. The zero value is ready. It is not for concurrent use.
type DecodeCache[K, V comparable] struct {
	known map[K]decodedPart[V]
}

// Part is one part of a source.
type Part[K, V comparable] struct {
	// Key names the part in the source.
	Key K
	// Version is the same for the same content.
	Version V
	// Decode reads the part, within a budget for all parts.
	Decode func(*Budget) ([]Object, Problems)
}

type decodedPart[V comparable] struct {
	version  V
	objects  []Object
	problems Problems
}

// Decode returns the objects of the parts. Known parts count first in the budget, TotalLimit; the others follow in their
// order.
func (c *DecodeCache[K, V]) Decode(parts []Part[K, V]) (objects []Object, problems Problems) {
	budget, known := &Budget{Limit: TotalLimit()}, make([]bool, len(parts))
	for i, p := range parts {
		if before, ok := c.known[p.Key]; ok && before.version == p.Version {
			known[i] = true
			budget.count(before.objects)
		}
	}
	next := make(map[K]decodedPart[V], len(parts))
	for i, p := range parts {
		one, refused := c.known[p.Key], budget.refused
		if !known[i] {
			one.version = p.Version
			one.objects, one.problems = p.Decode(budget)
		}
		if refused == budget.refused { // else there may be room the next time
			next[p.Key] = one
		}
		objects, problems = append(objects, one.objects...), append(problems, one.problems...)
	}
	c.known = next
	return objects, problems
}
