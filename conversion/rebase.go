package conversion

import "fmt"

// maxAligning is how many values Rebase compares to find out which items of an array are which. Beyond it an array that changes comes whole, and so
// does an array inside maxDiffDepth others. It bounds the work: arrays in arrays are compared anew for each place where an item may be, and at each
// level.
const maxAligning = 1 << 20

// Rebase returns base with the differences between from and to, three JSON objects of one kind; from is base as another program writes it: with
// defaults, without empty values, without fields that it does not know, or with the items of an array in another order. Values that from and to have
// in common stay as they are in base, and so do values that both lack.
//
// So an object of a newer cluster loses nothing on the way to a hook in another version and back: base is the object, from is it converted to the
// other version and back, to is the hook's result, converted back.
func Rebase(base, from, to []byte) ([]byte, error) {
	var trees [3]node
	for i, raw := range [...][]byte{base, from, to} {
		var err error
		if trees[i], err = parseObject(raw); err != nil {
			return nil, fmt.Errorf("carry changes over: %w", err)
		}
	}
	m := merger{left: maxAligning}
	out := jsonWriter(make([]byte, 0, len(base)+len(base)/4))
	out.node(m.value(&trees[0], &trees[1], &trees[2]))
	return out, nil
}

// merger is Rebase for trees. A nil node is a member that is not there; a node without raw is new, and consists of its
// children.
type merger struct {
	left int // values that may still be compared for aligning
}

// value compares objects by their bytes alone: members compares their members, once.
func (m *merger) value(base, from, to *node) *node {
	switch {
	case identical(to, from) || identical(to, base):
		return base
	case alike(base, from, to, '{'):
		return m.members(base, from, to)
	case same(to, from) || same(to, base):
		return base
	case alike(base, from, to, '[') && to.depth < maxDiffDepth:
		if aligned, ok := m.align(base.elements(), from.elements()); ok {
			return m.items(aligned, from.elements(), to.elements())
		}
	}
	return to
}

func alike(base, from, to *node, kind byte) bool {
	return base != nil && from != nil && to != nil && base.kind == kind && from.kind == kind && to.kind == kind
}

func same(a, b *node) bool {
	return a == b || a != nil && b != nil && equal(a, b)
}

// members returns base itself if none of its members changes.
func (m *merger) members(base, from, to *node) *node {
	own := base.elements()
	out, changed := &node{kind: '{', parsed: true, children: make([]node, 0, len(own)+1)}, false
	joinMembers(own, to.elements(), func(name []byte, own, to *node) {
		v := m.value(own, from.member(name), to)
		changed = changed || v != own
		if v != nil {
			v.name = name
			out.children = append(out.children, *v)
		}
	})
	if !changed {
		return base
	}
	return out
}

// align returns the items of base in the order of from; false when they are not the same items.
func (m *merger) align(base, from []node) ([]node, bool) {
	if len(base) != len(from) {
		return nil, false
	}
	aligned, taken := make([]node, len(base)), make([]bool, len(base))
	for i := range from {
		at := m.find(&from[i], i, base, taken)
		if at < 0 {
			return nil, false
		}
		aligned[i], taken[at] = base[at], true
	}
	return aligned, true
}

func (m *merger) find(item *node, i int, base []node, taken []bool) int {
	for step := range base {
		at := (i + step) % len(base)
		if !taken[at] && m.rewritten(&base[at], item) {
			return at
		}
	}
	return -1
}

// rewritten reports whether another program may have written from for base.
func (m *merger) rewritten(base, from *node) bool {
	if m.left--; m.left < 0 || base.kind != from.kind {
		return false
	}
	switch from.kind {
	case '{':
		members := from.elements()
		for i := range members {
			own := base.member(members[i].name)
			if own != nil && !m.rewritten(own, &members[i]) {
				return false
			}
		}
		return true
	case '[':
		_, ok := m.align(base.elements(), from.elements())
		return ok
	}
	return equal(base, from)
}

// items takes from base the items at both ends that to leaves unchanged, and goes through the others in turn. Item i of from is item i of base.
func (m *merger) items(base, from, to []node) *node {
	unchanged := func(i, j int) bool { return equal(&to[i], &from[j]) || equal(&to[i], &base[j]) }
	head, tail := sameEnds(len(to), len(from), unchanged)
	out := &node{kind: '[', parsed: true, children: make([]node, 0, len(to))}
	out.children = append(out.children, base[:head]...)
	for i := head; i < len(to)-tail; i++ {
		if i < len(from)-tail {
			out.children = append(out.children, *m.value(&base[i], &from[i], &to[i]))
		} else {
			out.children = append(out.children, to[i])
		}
	}
	out.children = append(out.children, base[len(base)-tail:]...)
	return out
}
