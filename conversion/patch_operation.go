package conversion

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// operation is one operation of a patch. Its members are read when they are needed, as in the library: a member that the operation does not need may
// be anything.
type operation struct {
	op, path, from, value []byte // as they stand; nil for an absent or null member
	hasValue              bool   // whether there is a value, which is null if it is nil
}

// errMissing is why an operation has no path or from.
var errMissing = errors.New("missing value")

// decodePatch reads a patch by the rules of jsonpatch.DecodePatch: an array of objects, of which any may be null, and the last of
// duplicate members counts. null is a patch without operations.
func decodePatch(patch []byte) ([]operation, error) {
	s := Scanner{data: patch}
	if s.Next() == 'n' {
		s.Skip()
		s.End()
		return nil, undecodable(patch, s.err)
	}
	var operations []operation
	count := 0
	for range s.Items {
		if count++; count > MaxPatchOperations {
			s.Skip()
			continue
		}
		operations = append(operations, readOperation(&s))
	}
	s.End()
	switch {
	case s.err != nil:
		return nil, undecodable(patch, s.err)
	case count > MaxPatchOperations:
		return nil, fmt.Errorf("it has %d operations, at most %d are taken", count, MaxPatchOperations)
	}
	return operations, nil
}

// undecodable is err, the reason that a patch cannot be read, with the text of encoding/json, which kube-apiserver returns.
func undecodable(patch []byte, err error) error {
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(json.Unmarshal(patch, new(struct{})), &syntax):
		return syntax
	}
	s := Scanner{data: patch}
	if c := s.Next(); c != '[' {
		return fmt.Errorf("json: cannot unmarshal %s into Go value of type jsonpatch.Patch", goName(c))
	}
	for range s.Items {
		if c := s.Next(); c != '{' && c != 'n' {
			return fmt.Errorf("json: cannot unmarshal %s into Go value of type jsonpatch.Operation", goName(c))
		}
		s.Skip()
	}
	return err
}

// goName is how encoding/json names the type of a value.
func goName(c byte) string {
	switch c {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "bool"
	default:
		return "number"
	}
}

func readOperation(s *Scanner) operation {
	var o operation
	if s.Next() == 'n' {
		s.Skip()
		return o
	}
	for name := range s.Members {
		value := s.Skip()
		if len(value) > 0 && value[0] == 'n' {
			value = nil
		}
		switch string(name) {
		case "op":
			o.op = value
		case "path":
			o.path = value
		case "from":
			o.from = value
		case "value":
			o.value, o.hasValue = value, true
		}
	}
	return o
}

func (o *operation) kind() string {
	kind, err := stringOf(o.op, "op")
	if err != nil {
		return "unknown"
	}
	return kind
}

func (o *operation) node() *patchNode {
	if !o.hasValue {
		return nil
	}
	return &patchNode{raw: o.value}
}

func stringOf(raw []byte, name string) (string, error) {
	switch {
	case raw == nil:
		return "", fmt.Errorf("operation missing %s field: %w", name, errMissing)
	case raw[0] != '"':
		return "", fmt.Errorf("operation field %s is not a string", name)
	}
	return string(unescaped(raw[1 : len(raw)-1])), nil
}

// unescapeToken reads a reference token of a JSON pointer (RFC 6901).
func unescapeToken(token string) string {
	if !strings.Contains(token, "~") {
		return token
	}
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
}
