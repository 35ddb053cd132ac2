package conversion

import "math"

// Longest bounds the values of a document. The zero value bounds a document that has none.
type Longest struct {
	// Items is the most items of an array, or members of an object.
	Items int
	// Bytes is the most bytes of a text, or of the name of a member.
	Bytes int
}

// Or bounds the values of both documents.
func (l Longest) Or(other Longest) Longest {
	return Longest{max(l.Items, other.Items), max(l.Bytes, other.Bytes)}
}

// unknownLongest bounds each document.
func unknownLongest() Longest { return Longest{math.MaxInt, math.MaxInt} }

// maxCounted is how many values LongestOf reads.
const maxCounted = 2000

// LongestOf bounds the values of a decoded document. The bound of a document with very many values, or with others than JSON has, says nothing.
func LongestOf(content any) Longest {
	r := longestReader{left: maxCounted}
	if !r.read(content) {
		return unknownLongest()
	}
	return r.Longest
}

// longestReader notes how long values are.
type longestReader struct {
	Longest

	left int // values to read
}

// read reads a value, and reports whether it could.
func (r *longestReader) read(value any) bool {
	if r.left--; r.left < 0 {
		return false
	}
	switch value := value.(type) {
	case map[string]any:
		r.Items = max(r.Items, len(value))
		for name, member := range value {
			r.Bytes = max(r.Bytes, len(name))
			if !r.read(member) {
				return false
			}
		}
	case []any:
		r.Items = max(r.Items, len(value))
		for _, item := range value {
			if !r.read(item) {
				return false
			}
		}
	case string:
		r.Bytes = max(r.Bytes, len(value))
	case nil, bool, int64, float64:
	default:
		return false
	}
	return true
}
