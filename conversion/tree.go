package conversion

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
)

// node is one value of a document, read as Kubernetes reads objects without a type. It refers to the document. Arrays and objects are parsed on
// demand: two versions of an object are mostly the same to the byte.
type node struct {
	// kind is the byte that the value begins with, and '0' for any number.
	kind byte
	// depth is how many arrays and objects it stands in.
	depth uint16
	// parsed is whether children are filled in.
	parsed bool
	// name is the unescaped name, for a member of an object.
	name []byte
	// raw is the value as it stands; nil when it was made of its children.
	raw []byte
	// children are the items of an array, or the members of an object: sorted by name, only the last of each name. Call elements.
	children []node
}

// maxLazyDepth is the depth down to which values are parsed one level at a time, which reads each level as often as it is deep. Deeper values are
// parsed at once.
const maxLazyDepth = 64

func (n *node) elements() []node {
	if n.parsed || n.kind != '{' && n.kind != '[' {
		return n.children
	}
	p := parser{Scanner: Scanner{data: n.raw}, stack: make([]node, 0, 16), levels: 1}
	if n.depth >= maxLazyDepth {
		p.levels = maxDepth
	}
	n.children, n.parsed = p.parse(nil, n.depth).children, true
	return n.children
}

func (n *node) member(name []byte) *node {
	members := n.elements()
	at, found := slices.BinarySearchFunc(members, name, func(m node, name []byte) int { return bytes.Compare(m.name, name) })
	if !found {
		return nil
	}
	return &members[at]
}

var errNoObject = errors.New("not a JSON object")

func parseObject(raw []byte) (node, error) {
	p := parser{Scanner: Scanner{data: raw}, stack: make([]node, 0, 16), levels: 1}
	if p.Next() != '{' {
		return node{}, errNoObject
	}
	root := p.parse(nil, 0)
	p.End()
	return root, p.err
}

// parser makes nodes, as many levels as it has. Children wait on the stack until their number is known, so that they are
// allocated once.
type parser struct {
	Scanner
	stack  []node
	levels int
}

func (p *parser) parse(name []byte, depth uint16) node {
	n := node{kind: p.Next(), depth: depth, name: name}
	start := p.pos
	switch {
	case (n.kind == '{' || n.kind == '[') && p.levels > 0:
		n.children, n.parsed = p.elements(n.kind, depth+1), true
	case n.kind == '-' || '0' <= n.kind && n.kind <= '9':
		n.kind = '0'
		p.value()
	default:
		p.value()
	}
	if p.err == nil { // An error has moved p.pos.
		n.raw = p.data[start:p.pos]
	}
	return n
}

func (p *parser) elements(kind byte, depth uint16) []node {
	base := len(p.stack)
	p.levels--
	defer func() { p.levels++ }()
	if kind == '[' {
		for range p.Items {
			p.stack = append(p.stack, p.parse(nil, depth))
		}
		return p.pop(base)
	}
	for name := range p.Members {
		p.stack = append(p.stack, p.parse(name, depth))
	}
	return lastByName(p.pop(base))
}

func (p *parser) pop(base int) []node {
	children := slices.Clone(p.stack[base:])
	p.stack = p.stack[:base]
	return children
}

// lastByName sorts members by name and drops all but the last of the same name.
func lastByName(members []node) []node {
	slices.SortStableFunc(members, func(a, b node) int { return bytes.Compare(a.name, b.name) })
	kept := members[:0]
	for i, m := range members {
		if i+1 == len(members) || !bytes.Equal(members[i+1].name, m.name) {
			kept = append(kept, m)
		}
	}
	return kept
}

// identical compares two values cheaply, by their bytes. It skips deep values: comparing each level would read their bytes once for each value around
// them.
func identical(a, b *node) bool {
	return a == b || a != nil && b != nil && a.raw != nil && a.depth < maxLazyDepth && bytes.Equal(a.raw, b.raw)
}

// equal reports whether two values are the same to Kubernetes.
func equal(a, b *node) bool {
	if a.kind != b.kind {
		return false
	}
	switch a.kind {
	case '{', '[':
		return identical(a, b) || equalElements(a.elements(), b.elements())
	case '"':
		return sameString(a.raw, b.raw)
	case '0':
		return sameNumber(a.raw, b.raw)
	default:
		return true
	}
}

func equalElements(a, b []node) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i].name, b[i].name) || !equal(&a[i], &b[i]) {
			return false
		}
	}
	return true
}

func sameString(a, b []byte) bool {
	return bytes.Equal(a, b) || bytes.Equal(unescaped(a[1:len(a)-1]), unescaped(b[1:len(b)-1]))
}

// joinMembers visits the members of two objects by name; an absent member is nil.
func joinMembers(a, b []node, visit func(name []byte, x, y *node)) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(a) > 0 && len(b) > 0 && bytes.Equal(a[0].name, b[0].name):
			visit(a[0].name, &a[0], &b[0])
			a, b = a[1:], b[1:]
		case len(b) == 0 || len(a) > 0 && bytes.Compare(a[0].name, b[0].name) < 0:
			visit(a[0].name, &a[0], nil)
			a = a[1:]
		default:
			visit(b[0].name, nil, &b[0])
			b = b[1:]
		}
	}
}

// sameEnds is how many items of two arrays of n and m are the same at the start, and how many of the others at the end.
func sameEnds(n, m int, same func(i, j int) bool) (first, last int) {
	short := min(n, m)
	for first < short && same(first, first) {
		first++
	}
	for last < short-first && same(n-1-last, m-1-last) {
		last++
	}
	return first, last
}

// sameNumber compares numbers as UnmarshalCaseSensitivePreserveInts of sigs.k8s.io/json reads them: 1 and 1.0 differ,
// since one is an int64 and the other a float64; 1.0 and 1.00 do not. Integers beyond int64 it would read as fractions:
// here they are the same only when they are spelled the same.
func sameNumber(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if isInteger(a) || isInteger(b) {
		return string(a) == "-0" && string(b) == "0" || string(a) == "0" && string(b) == "-0"
	}
	x, errX := strconv.ParseFloat(string(a), 64)
	y, errY := strconv.ParseFloat(string(b), 64)
	return errX == nil && errY == nil && x == y
}

func isInteger(number []byte) bool { return !bytes.ContainsAny(number, ".eE") }

func (w *jsonWriter) node(n *node) {
	switch {
	case n.raw != nil:
		w.raw(n.raw...)
	case n.kind == '{':
		w.raw('{')
		for i := range n.children { // Not elements: a node without raw was made of them.
			w.key(string(n.children[i].name))
			w.node(&n.children[i])
		}
		w.close('}')
	default:
		w.raw('[')
		for i := range n.children {
			w.element()
			w.node(&n.children[i])
		}
		w.close(']')
	}
}
