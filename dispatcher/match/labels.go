package match

import (
	"bytes"
	"errors"

	"github.com/portcullis-mesh/portcullis/conversion"
)

var errNoObject = errors.New("not a JSON object")

// metadataLabels reads metadata.labels of a JSON object as Kubernetes reads an object without a Go type: sigs.k8s.io/json decodes it, and
// Unstructured.GetLabels finds the labels. Keys are case-sensitive, and of duplicate ones the last counts, as a whole. null is the empty string, and
// any other value than a map of strings means no labels. found is false for an object without metadata. The error is a syntax error in the part that
// was read, or comes from book, which gets the size of many labels in bytes.
//
// A reader with a Go type merges duplicate metadata and labels instead. So the two may select differently, and callers whose objects may have
// duplicate fields are refused before (checkObjects of package bridge).
func metadataLabels(raw []byte, book func(bytes int) error) (found bool, labels map[string]string, err error) {
	s := conversion.NewScanner(raw)
	if s.Next() != '{' {
		return false, nil, errNoObject
	}
	var written []byte // the labels
	for name := range s.Members {
		if string(name) != "metadata" {
			s.Skip()
			continue
		}
		if found, written = true, labelsOf(s); !mayNameMetadata(s.Rest()) {
			break // API servers write metadata before everything that makes an object large.
		}
	}
	if s.Err() != nil {
		return found, nil, s.Err()
	}
	if len(written) > usualLabels {
		if err := book(len(written)); err != nil {
			return found, nil, err
		}
	}
	return found, stringMap(written), nil
}

func labelsOf(s *conversion.Scanner) (written []byte) {
	if s.Next() != '{' {
		s.Skip()
		return nil
	}
	for name := range s.Members {
		if value := s.Skip(); string(name) == "labels" {
			written = value
		}
	}
	return written
}

// mayNameMetadata reports whether a part of a document may have a member metadata, spelled as it is or with an escape. It is several
// times as fast as reading that part.
func mayNameMetadata(part []byte) bool {
	return bytes.Contains(part, []byte(`"metadata"`)) || bytes.Contains(part, []byte(`\u`))
}

// usualLabels is up to how many bytes of labels the memory booked for any review suffices.
const usualLabels = 4 << 10

// stringMap reads an object whose values are strings or null; it is nil for everything else.
func stringMap(raw []byte) map[string]string {
	s := conversion.NewScanner(raw)
	if s.Next() != '{' {
		return nil
	}
	all := map[string]string{}
	var others map[string]bool // of other types
	for name := range s.Members {
		key, kind := string(name), s.Next()
		delete(others, key)
		switch kind {
		case '"':
			all[key] = s.Text()
			continue
		case 'n':
			all[key] = ""
		default:
			if others == nil {
				others = map[string]bool{}
			}
			others[key] = true
		}
		s.Skip()
	}
	if len(others) > 0 {
		return nil
	}
	return all
}
