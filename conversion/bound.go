package conversion

import (
	"bytes"
	"unicode/utf8"
)

// exactDigits is from how many bytes on a whole number may not fit an int64.
const exactDigits = 19

// Bound bounds the values of a JSON object, without memory for them. If ok is true, [Content] reads the document without an error, and [Value] each part
// of it.
func Bound(document []byte) (longest Longest, ok bool) {
	r := contentReader{Scanner: Scanner{data: document}}
	if r.Next() != '{' || !utf8.Valid(document) { // a byte that is no UTF-8 becomes a character of three
		return Longest{}, false
	}
	r.bound()
	r.End()
	return r.longest, r.Err() == nil
}

// bound reads one value.
func (r *contentReader) bound() {
	switch c := r.Next(); c {
	case '{':
		members := 0
		for more := r.enter(c); more; more = r.more('}') {
			r.longest.Bytes = max(r.longest.Bytes, len(r.name()))
			r.bound()
			members++
		}
		r.longest.Items = max(r.longest.Items, members)
	case '[':
		items := 0
		for range r.Items {
			r.bound()
			items++
		}
		r.longest.Items = max(r.longest.Items, items)
	case '"':
		r.longest.Bytes = max(r.longest.Bytes, len(r.quoted()))
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		start := r.pos
		if number := r.Skip(); len(number) >= exactDigits || bytes.ContainsAny(number, "eE") {
			r.numeric(string(number), start)
		}
	default:
		r.value()
	}
}

// Value reads a JSON value that is valid, as [Content] does.
func Value(document []byte) any {
	r := contentReader{Scanner: Scanner{data: document}}
	return r.content()
}
