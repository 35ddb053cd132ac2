package conversion

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// MetadataEdit sets or removes one label or annotation.
type MetadataEdit struct {
	// Op is "add", "replace" or "remove" (RFC 6902).
	Op string
	// Annotation is true for an annotation, and false for a label.
	Annotation bool
	// Key is the key of the label or annotation, and Value its value, which a removal has not.
	Key, Value string
}

// MetadataEdits returns the operations of a patch that changes single labels and annotations, and nothing else; ok is false for any other patch. A patch
// with an escape in a path or a value is another patch.
func MetadataEdits(patch []byte) (edits []MetadataEdit, ok bool) {
	if bytes.IndexByte(patch, '\\') >= 0 || !utf8.Valid(patch) {
		return nil, false
	}
	operations, err := decodePatch(patch)
	if err != nil {
		return nil, false
	}
	for i := range operations {
		o := &operations[i]
		e := MetadataEdit{Op: o.kind()}
		path, err := stringOf(o.path, "path")
		if err != nil {
			return nil, false
		}
		key, isLabel := strings.CutPrefix(path, "/metadata/labels/")
		if !isLabel {
			if key, e.Annotation = strings.CutPrefix(path, "/metadata/annotations/"); !e.Annotation {
				return nil, false
			}
		}
		if strings.Contains(key, "/") {
			return nil, false
		}
		e.Key = unescapeToken(key)
		switch e.Op {
		case "add", "replace":
			if e.Value, err = stringOf(o.value, "value"); err != nil {
				return nil, false
			}
		case "remove":
		default:
			return nil, false
		}
		edits = append(edits, e)
	}
	return edits, len(edits) > 0
}
