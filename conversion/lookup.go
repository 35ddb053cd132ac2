package conversion

import (
	"fmt"

	kjson "sigs.k8s.io/json"
)

// Lookup returns the value at a path of members of a JSON object as it stands; nil if there is none, or if a member on the way is null. It reads the
// whole document, many times as fast as a decoder, and the value shares its bytes. Names are case-sensitive. Of two members of a name the last counts:
// callers whose objects may have two are refused before (checkObjects of package bridge). The error is of syntax anywhere, or of a value on the way that is
// no object.
func Lookup(document []byte, path ...string) ([]byte, error) {
	s := NewScanner(document)
	value, err := s.lookup(path)
	if s.End(); s.Err() != nil {
		return nil, s.Err()
	}
	return value, err
}

// lookup reads a value and returns the part of it at a path.
func (s *Scanner) lookup(path []string) (found []byte, err error) {
	kind := s.Next()
	switch {
	case len(path) == 0:
		return s.Skip(), nil
	case kind == 'n':
		s.Skip()
		return nil, nil
	case kind != '{':
		s.Skip()
		return nil, errNoObject
	}
	for name := range s.Members {
		if string(name) != path[0] {
			s.Skip()
			continue
		}
		if found, err = s.lookup(path[1:]); err != nil {
			err = fmt.Errorf("%s: %w", path[0], err)
		}
	}
	return found, err
}

// LookupText is [Lookup] for a text; empty without one, and for null.
func LookupText(document []byte, path ...string) (text string, err error) {
	value, err := Lookup(document, path...)
	if err != nil || value == nil {
		return "", err
	}
	return text, kjson.UnmarshalCaseSensitivePreserveInts(value, &text)
}
