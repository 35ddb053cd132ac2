package conversion

import "bytes"

// Extent counts the parts of a JSON document, by which the memory is estimated that it takes decoded. Short values take much more
// than their bytes: an object of a thousand empty objects is 3 kB of JSON, and a megabyte as Go types.
type Extent struct {
	// Bytes is the length of the document.
	Bytes int64
	// Values is how many values it has, each of its members and items.
	Values int64
	// Objects is how many of the values are objects with members, Empty how many are objects without.
	Objects, Empty int64
}

// Estimated memory of values, in bytes. Each figure was measured on objects of one kind of value, as the memory in use at the end
// (TestExtentsAreEstimatedHighEnough): garbage is in the factor that operators add for the process.
const (
	untypedObject = 320 // a map of one to eight members
	untypedEmpty  = 64  // a map that has none
	untypedValue  = 96  // an item or a member, with its name, number or string; a large map takes more or less, by chance
	typedObject   = 1 << 10
	typedValue    = 160
	treeValue     = 96  // a node
	nameValue     = 112 // the name of a member among many
)

// exactAbove is from which estimate on the values are counted exactly, in bytes. Below it a count of commas and brackets will do, those
// in strings among them.
const exactAbove = 1 << 20

// ExtentOf counts the values of a document, which has to be valid.
func ExtentOf(document []byte) Extent {
	braces := int64(bytes.Count(document, []byte("{")))
	e := Extent{
		Bytes: int64(len(document)), Objects: braces,
		Values: 1 + braces + int64(bytes.Count(document, []byte("["))) + int64(bytes.Count(document, []byte(","))),
	}
	if e.Typed() < exactAbove {
		return e
	}
	return exactExtent(document)
}

// exactExtent reads a document to its end, without the contents of strings.
func exactExtent(document []byte) Extent {
	e := Extent{Bytes: int64(len(document)), Values: 1}
	s := Scanner{data: document}
	for s.pos < len(document) {
		switch c := document[s.pos]; c {
		case '"':
			s.pos += stringLength(document[s.pos:])
			continue
		case ',':
			e.Values++
		case '{', '[':
			s.pos++
			switch closed := s.Next() == c+2; { // in ASCII the brackets stand two after their openings
			case !closed && c == '{':
				e.Objects++
				e.Values++
			case !closed:
				e.Values++
			case c == '{':
				e.Empty++
			}
			continue
		}
		s.pos++
	}
	return e
}

// Untyped is the memory of the document as maps and slices, in bytes.
func (e Extent) Untyped() int64 {
	return e.Bytes + untypedObject*e.Objects + untypedEmpty*e.Empty + untypedValue*e.Values
}

// Typed is the memory of the document as Go types of Kubernetes, in bytes.
func (e Extent) Typed() int64 {
	return e.Bytes + typedObject*(e.Objects+e.Empty) + typedValue*e.Values
}

// Tree is the memory of the document as a tree by which objects are compared here, in bytes.
func (e Extent) Tree() int64 { return treeValue * e.Values }

// Names is the memory that CheckObject takes to read the document, in bytes.
func (e Extent) Names() int64 { return nameValue * e.Values }
