package conversion

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// node is one value of a document, read as Kubernetes reads objects without a type.
type node struct {
	// kind is the byte that the value begins with, and '0' for any number.
	kind byte
	// raw is the value as it stands.
	raw []byte
	// members of an object, sorted by name; the last one of each name.
	members []member
	// items of an array.
	items []node
}

type member struct {
	name  string
	value node
}

var errNoObject = errors.New("not a JSON object")

// parseObject reads a document that is one object. The nodes refer to raw.
func parseObject(raw []byte) (node, error) {
	s := &scanner{data: raw}
	if s.next() != '{' {
		return node{}, errNoObject
	}
	root := parse(s)
	s.end()
	return root, s.err
}

func parse(s *scanner) node {
	n := node{kind: s.next()}
	start := s.pos
	switch n.kind {
	case '{':
		for name := range s.members {
			n.members = append(n.members, member{name: string(name), value: parse(s)})
		}
		n.members = lastByName(n.members)
	case '[':
		for range s.items {
			n.items = append(n.items, parse(s))
		}
	case '"', 't', 'f', 'n':
		s.value()
	default:
		n.kind = '0'
		s.value()
	}
	if s.err == nil { // An error has moved s.pos.
		n.raw = s.data[start:s.pos]
	}
	return n
}

// lastByName sorts members by name and drops all but the last of the same name.
func lastByName(members []member) []member {
	slices.SortStableFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	kept := members[:0]
	for i, m := range members {
		if i+1 == len(members) || members[i+1].name != m.name {
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
	case '{':
		return slices.EqualFunc(a.members, b.members, func(a, b member) bool { return a.name == b.name && equal(&a.value, &b.value) })
	case '[':
		return slices.EqualFunc(a.items, b.items, func(a, b node) bool { return equal(&a, &b) })
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
func isInteger(number []byte) bool { return bytes.IndexAny(number, ".eE") < 0 }
