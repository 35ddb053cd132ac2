package conversion

import (
	"strconv"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Content reads a JSON object into a map, with the values, and the errors, of Unmarshal of k8s.io/apimachinery/pkg/util/json: a whole number is an
// int64 if it fits, another number a float64, and the last of equal names counts. It is there for speed: Unmarshal reads each document twice, and copies
// each text by itself. longest bounds the values.
func Content(document []byte) (content map[string]any, longest Longest, err error) {
	r := contentReader{Scanner: Scanner{data: document}}
	if r.Next() == '{' {
		content := r.members()
		if r.End(); r.Err() == nil {
			return content, r.longest, nil
		}
	}
	content, err = contentSlowly(document)
	return content, LongestOf(content), err
}

// contentSlowly is the original of Content.
func contentSlowly(document []byte) (content map[string]any, err error) {
	err = utiljson.Unmarshal(document, &content)
	return content, err
}

// contentReader is a scanner that notes how long the values are.
type contentReader struct {
	Scanner

	longest Longest
}

// content reads one value.
func (r *contentReader) content() any {
	switch r.Next() {
	case '{':
		return r.members()
	case '[':
		items := []any{}
		for range r.Items {
			items = append(items, r.content())
		}
		r.longest.Items = max(r.longest.Items, len(items))
		return items
	case '"':
		text := r.Text()
		r.longest.Bytes = max(r.longest.Bytes, len(text))
		return text
	case 't':
		r.literal("true")
		return true
	case 'f':
		r.literal("false")
		return false
	case 'n':
		r.literal("null")
		return nil
	}
	start := r.pos
	return r.numeric(string(r.Skip()), start)
}

// members reads an object.
func (r *contentReader) members() map[string]any {
	members := map[string]any{}
	for more := r.enter('{'); more; more = r.more('}') {
		name := r.text(r.name())
		r.longest.Bytes = max(r.longest.Bytes, len(name))
		members[name] = r.content()
	}
	r.longest.Items = max(r.longest.Items, len(members))
	return members
}

// numeric is a number that begins at a byte.
func (s *Scanner) numeric(number string, start int) any {
	if !strings.Contains(number, ".") {
		if i, err := strconv.ParseInt(number, 10, 64); err == nil {
			return i
		}
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		s.failf(start, "the number %s is too large", number)
	}
	return f
}
