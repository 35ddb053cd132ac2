package conversion

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
)

// reviewDepth is how many objects an object of a request stands in, in the AdmissionReview that JSON webhooks get.
const reviewDepth = 2

// CheckObject returns why bytes cannot be an object of a request (object, oldObject or options), and nil if they can: they are one
// JSON object of well-formed Unicode (CheckText) without a duplicate field, and no deeper than a JSON decoder takes it in an
// AdmissionReview. The error names the first duplicate field by its path, as sigs.k8s.io/json does: spec.containers[0].image.
// Nothing is built from the object: it takes the names of the objects that are open at a time.
func CheckObject(raw []byte) error {
	d := &duplicates{Scanner: Scanner{data: raw, depth: reviewDepth}}
	if d.Next() != '{' {
		return errNoObject
	}
	d.visit()
	d.End()
	switch {
	case d.err != nil:
		return fmt.Errorf("malformed JSON: %w", d.err)
	case d.twice:
		return fmt.Errorf("duplicate field %q", d.found)
	}
	return CheckText(raw)
}

type duplicates struct {
	Scanner
	names [][]byte // of the objects that are open, outermost first
	path  []step
	twice bool   // whether there is any
	found string // the path of the first one
}

// step is one on the way from the document to a value: a name, or an index if that is nil.
type step struct {
	name  []byte
	index int
}

// manyNames is from how many members on an object's names are looked up rather than compared.
const manyNames = 32

func (d *duplicates) visit() {
	switch d.Next() {
	case '{':
		d.object()
	case '[':
		for i := range d.Items {
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
	for name := range d.Members {
		d.path = append(d.path, step{name: name})
		if !d.twice && has(d.names[first:], known, name) {
			d.twice, d.found = true, pathOf(d.path)
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

func has(names [][]byte, known map[string]struct{}, name []byte) bool {
	if known != nil {
		_, ok := known[string(name)]
		return ok
	}
	return slices.ContainsFunc(names, func(n []byte) bool { return bytes.Equal(n, name) })
}

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
