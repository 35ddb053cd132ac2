package conversion

import (
	"bytes"
	"slices"
	"strconv"
)

// Duplicate finds a member that an object in a JSON document has twice, and returns the path to it, as sigs.k8s.io/json says
// it: spec.containers[0].image. It is empty when there is none, and for what is no JSON document. The first one counts.
// Nothing is built from the document: it takes the names of the objects that are open at a time.
func Duplicate(document []byte) (path string) {
	d := &duplicates{scanner: scanner{data: document}}
	d.visit()
	d.end()
	if d.err != nil {
		return ""
	}
	return d.found
}

// duplicates looks for members that come twice.
type duplicates struct {
	scanner
	names [][]byte // of the objects that are open, outermost first
	path  []step
	found string // the first one
}

// step is one on the way from the document to a value: a name, or an index if that is nil.
type step struct {
	name  []byte
	index int
}

// manyNames is from how many members on an object's names are looked up rather than compared.
const manyNames = 32

// visit reads one value.
func (d *duplicates) visit() {
	switch d.next() {
	case '{':
		d.object()
	case '[':
		for i := range d.items {
			d.path = append(d.path, step{index: i})
			d.visit()
			d.path = d.path[:len(d.path)-1]
		}
	default:
		d.value()
	}
}

func (d *duplicates) object() {
	first := len(d.names)
	var known map[string]struct{} // of names[first:], once they are many
	for name := range d.members {
		d.path = append(d.path, step{name: name})
		if d.found == "" && has(d.names[first:], known, name) {
			d.found = pathOf(d.path)
		}
		d.names = append(d.names, name)
		switch own := d.names[first:]; {
		case known != nil:
			known[string(name)] = struct{}{}
		case len(own) == manyNames:
			known = make(map[string]struct{}, 2*manyNames)
			for _, n := range own {
				known[string(n)] = struct{}{}
			}
		}
		d.visit()
		d.path = d.path[:len(d.path)-1]
	}
	d.names = d.names[:first]
}

// has reports whether a name is among others.
func has(names [][]byte, known map[string]struct{}, name []byte) bool {
	if known != nil {
		_, ok := known[string(name)]
		return ok
	}
	return slices.ContainsFunc(names, func(n []byte) bool { return bytes.Equal(n, name) })
}

// pathOf writes the steps to a value.
func pathOf(steps []step) string {
	var b []byte
	for _, s := range steps {
		switch {
		case s.name == nil:
			b = append(strconv.AppendInt(append(b, '['), int64(s.index), 10), ']')
		case len(b) == 0:
			b = append(b, s.name...)
		default:
			b = append(append(b, '.'), s.name...)
		}
	}
	return string(b)
}
