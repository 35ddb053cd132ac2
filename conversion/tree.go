package conversion

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
)

// node is one value of a document, read as Kubernetes reads objects without a type. It refers to the document.
type node struct {
	// kind is the byte that the value begins with, and '0' for any number.
	kind byte
	// name is the unescaped name, for a member of an object.
	name []byte
	// raw is the value as it stands; nil when it was made of its children.
	raw []byte
	// children are the items of an array, or the members of an object: sorted by name, the last one of each name.
	children []node
}

// member finds a member of an object by its name; nil when there is none.
func (n *node) member(name []byte) *node {
	at, found := slices.BinarySearchFunc(n.children, name, func(m node, name []byte) int { return bytes.Compare(m.name, name) })
	if !found {
		return nil
	}
	return &n.children[at]
}

var errNoObject = errors.New("not a JSON object")

// parseObject reads a document that is one object.
func parseObject(raw []byte) (node, error) {
	p := parser{scanner: scanner{data: raw}, stack: make([]node, 0, 64)}
	if p.next() != '{' {
		return node{}, errNoObject
	}
	root := p.parse(nil)
	p.end()
	return root, p.err
}

// parser makes nodes. Children wait on the stack until their number is known, so that they are allocated once.
type parser struct {
	scanner
	stack []node
}

func (p *parser) parse(name []byte) node {
	n := node{kind: p.next(), name: name}
	start, base := p.pos, len(p.stack)
	switch n.kind {
	case '{':
		for name := range p.members {
			p.stack = append(p.stack, p.parse(name))
		}
		n.children = lastByName(p.pop(base))
	case '[':
		for range p.items {
			p.stack = append(p.stack, p.parse(nil))
		}
		n.children = p.pop(base)
	case '"', 't', 'f', 'n':
		p.value()
	default:
		n.kind = '0'
		p.value()
	}
	if p.err == nil { // An error has moved p.pos.
		n.raw = p.data[start:p.pos]
	}
	return n
}

// pop takes the nodes above base off the stack.
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

// equal says whether two values are the same to Kubernetes.
func equal(a, b *node) bool {
	if a.kind != b.kind {
		return false
	}
	switch a.kind {
	case '{', '[':
		if len(a.children) != len(b.children) {
			return false
		}
		for i := range a.children {
			if !bytes.Equal(a.children[i].name, b.children[i].name) || !equal(&a.children[i], &b.children[i]) {
				return false
			}
		}
		return true
	case '"':
		return sameString(a.raw, b.raw)
	case '0':
		return sameNumber(a.raw, b.raw)
	default:
		return true
	}
}

// sameString compares strings by their text.
func sameString(a, b []byte) bool {
	return bytes.Equal(a, b) || bytes.Equal(unescaped(a[1:len(a)-1]), unescaped(b[1:len(b)-1]))
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

// isInteger says whether a number has neither fraction nor exponent.
func isInteger(number []byte) bool { return !bytes.ContainsAny(number, ".eE") }

// node writes a value.
func (w *jsonWriter) node(n *node) {
	switch {
	case n.raw != nil:
		w.raw(n.raw...)
	case n.kind == '{':
		w.raw('{')
		for i := range n.children {
			w.key(string(n.children[i].name))
			w.node(&n.children[i])
		}
		w.close('}')
	default:
		w.raw('[')
		for i := range n.children {
			if i > 0 {
				w.raw(',')
			}
			w.node(&n.children[i])
		}
		w.close(']')
	}
}
