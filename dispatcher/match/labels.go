package match

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// metadataLabels reads metadata.labels of a JSON object. It looks at nothing behind them: API servers put metadata
// before everything that makes an object large. found is false for an object without metadata.
//
// Keys are case-sensitive. As in Unstructured.GetLabels of apimachinery, null is the empty string, and what is not a map
// of strings is no labels at all. Of metadata that is written twice, which no API server does, the first counts. The
// error is about syntax, and only of what was looked at, or that of book, which is told the bytes of labels that are many.
func metadataLabels(raw []byte, book func(bytes int) error) (found bool, labels map[string]string, err error) {
	s := &scanner{data: raw}
	if s.peek() != '{' {
		return false, nil, s.unexpected("an object")
	}
	if found, err = s.seek("metadata"); !found {
		return false, nil, err
	}
	if ok, err := s.seek("labels"); !ok {
		return true, nil, err
	}
	if err := s.measure(book); err != nil {
		return true, nil, err
	}
	labels, err = s.stringMap()
	return true, labels, err
}

// usualLabels is up to how many bytes labels are part of what is booked for any review.
const usualLabels = 4 << 10

// measure books the value that starts here, if it is long.
func (s *scanner) measure(book func(bytes int) error) error {
	if len(s.data)-s.pos <= usualLabels {
		return nil
	}
	end := *s
	if err := end.skip(); err != nil {
		return err
	}
	if n := end.pos - s.pos; n > usualLabels {
		return book(n)
	}
	return nil
}

// scanner walks over JSON without building it. It checks no more than it needs to find its way.
type scanner struct {
	data []byte
	pos  int
}

// peek skips white space and returns the next byte, without taking it; 0 at the end.
func (s *scanner) peek() byte {
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// take takes the next byte if it is c.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.pos++
	return true
}

func (s *scanner) unexpected(want string) error {
	if s.peek() == 0 {
		return io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s expected at offset %d, got %q", want, s.pos, s.data[s.pos])
}

// seek goes from the start of an object to the value of the named member. found is false at the end of an object
// without it, and for a value that is no object.
func (s *scanner) seek(name string) (found bool, err error) {
	err = s.members(func(key string) (bool, error) {
		found = key == name
		if found {
			return false, nil
		}
		return true, s.skip()
	})
	return found, err
}

// stringMap reads an object whose values are strings or null; it is nil for everything else.
func (s *scanner) stringMap() (map[string]string, error) {
	all, clean := map[string]string{}, s.peek() == '{'
	err := s.members(func(key string) (bool, error) {
		switch s.peek() {
		case '"':
			text, err := s.text()
			all[key] = text
			return true, err
		case 'n':
			all[key] = ""
		default:
			clean = false
		}
		return true, s.skip()
	})
	if err != nil || !clean {
		return nil, err
	}
	return all, nil
}

// members calls visit at each value of the object that starts here. visit has to go past the value; if it reports
// false, members stops there. A value that is no object has no members.
func (s *scanner) members(visit func(key string) (bool, error)) error {
	if !s.take('{') {
		return s.skip()
	}
	if s.take('}') {
		return nil
	}
	for {
		key, err := s.text()
		if err != nil {
			return err
		}
		if !s.take(':') {
			return s.unexpected("a colon")
		}
		if more, err := visit(key); err != nil || !more {
			return err
		}
		if s.take('}') {
			return nil
		}
		if !s.take(',') {
			return s.unexpected("a comma")
		}
	}
}

// text reads a string.
func (s *scanner) text() (string, error) {
	if s.peek() != '"' {
		return "", s.unexpected("a string")
	}
	start := s.pos
	if err := s.skipString(); err != nil {
		return "", err
	}
	quoted := s.data[start:s.pos]
	if bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted) {
		return string(quoted[1 : len(quoted)-1]), nil
	}
	var text string
	err := json.Unmarshal(quoted, &text)
	return text, err
}

var errUnclosedString = errors.New("a string is not closed")

func (s *scanner) skipString() error {
	for from := s.pos + 1; ; {
		i := bytes.IndexByte(s.data[from:], '"')
		if i < 0 {
			return errUnclosedString
		}
		end := from + i
		from = end + 1
		if !escaped(s.data[s.pos+1 : end]) {
			s.pos = from
			return nil
		}
	}
}

// escaped reports whether what follows text is escaped by its last backslash.
func escaped(text []byte) bool {
	n := 0
	for n < len(text) && text[len(text)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// skip goes past the value that starts here.
func (s *scanner) skip() error {
	switch s.peek() {
	case 0:
		return io.ErrUnexpectedEOF
	case '"':
		return s.skipString()
	case '{', '[':
		return s.skipNested()
	}
	start := s.pos
	for s.pos < len(s.data) && !delimits(s.data[s.pos]) {
		s.pos++
	}
	if s.pos == start {
		return s.unexpected("a value")
	}
	return nil
}

// delimits reports whether c ends a number or a literal.
func delimits(c byte) bool {
	switch c {
	case ',', ':', ']', '}', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}

// skipNested goes past an object or array. It counts brackets, so that depth costs nothing.
func (s *scanner) skipNested() error {
	for depth := 0; s.pos < len(s.data); {
		switch s.data[s.pos] {
		case '"':
			if err := s.skipString(); err != nil {
				return err
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		s.pos++
		if depth == 0 {
			return nil
		}
	}
	return io.ErrUnexpectedEOF
}
