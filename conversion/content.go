package conversion

import (
	"strconv"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Content reads a JSON object into a map, with the values, and the errors, of Unmarshal of k8s.io/apimachinery/pkg/util/json: a whole number is an
// int64 if it fits, another number a float64, and the last of equal names counts. It is there for speed: Unmarshal reads each document twice, and copies
// each text by itself.
func Content(document []byte) (map[string]any, error) {
	s := NewScanner(document)
	if s.Next() == '{' {
		content := s.members()
		if s.End(); s.Err() == nil {
			return content, nil
		}
	}
	return contentSlowly(document)
}

// contentSlowly is the original of Content.
func contentSlowly(document []byte) (content map[string]any, err error) {
	err = utiljson.Unmarshal(document, &content)
	return content, err
}

// content reads one value.
func (s *Scanner) content() any {
	switch s.Next() {
	case '{':
		return s.members()
	case '[':
		items := []any{}
		for range s.Items {
			items = append(items, s.content())
		}
		return items
	case '"':
		return s.Text()
	case 't':
		s.literal("true")
		return true
	case 'f':
		s.literal("false")
		return false
	case 'n':
		s.literal("null")
		return nil
	}
	start := s.pos
	return s.numeric(string(s.Skip()), start)
}

// members reads an object.
func (s *Scanner) members() map[string]any {
	members := map[string]any{}
	for more := s.enter('{'); more; more = s.more('}') {
		name := s.text(s.name())
		members[name] = s.content()
	}
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
