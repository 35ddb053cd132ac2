package builtin

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// maxStrictErrors is how many unknown fields sigs.k8s.io/json names; behind that many there may be more.
const maxStrictErrors = 100

// unknownField begins the error of sigs.k8s.io/json about a field that the type does not have.
const unknownField = "unknown field"

// maxPathBytes bounds the paths of all values of an object with unknown fields, together. An object of 3 MiB has paths of about 20 MB; thousands of
// nested objects with long names have paths of gigabytes.
const maxPathBytes = 256 << 20

// errAmbiguous means that unknown content of an object cannot be separated from known content.
var errAmbiguous = errors.New("a field twice, too many unknown ones, or one whose name reads as a path")

// restOf returns the fields of a JSON object that its Go type does not know, as a tree in the shape of the object; nil if the type knows all. Arrays
// in it are as long as in the object. decoded is the object as its type, strict are the errors of the strict decoding.
func restOf(raw []byte, decoded runtime.Object, strict []error) (any, error) {
	known, hides, err := hidden(raw, decoded)
	if err != nil || !hides && len(strict) == 0 {
		return nil, err
	}
	unknown := map[string]bool{}
	for _, err := range strict {
		var field interface{ FieldPath() string }
		if len(strict) >= maxStrictErrors || !strings.HasPrefix(err.Error(), unknownField) || !errors.As(err, &field) {
			return nil, errAmbiguous
		}
		unknown[field.FieldPath()] = true
	}
	found, remaining := 0, maxPathBytes
	rest := pick(parse(raw), "", func(path string, v any) bool {
		if remaining -= len(path); remaining < 0 {
			return true // and looks no further
		}
		if unknown[path] {
			found++
		}
		return unknown[path] || hides && !known[path] && !isEmpty(v)
	})
	if remaining < 0 || found > len(unknown) { // a name with a dot or a bracket that reads as the path of another
		return nil, errAmbiguous
	}
	return rest, nil
}

// hidden finds unknown fields that strict decoding does not report: the schemas of a CustomResourceDefinition decode parts of themselves on their
// own. It returns the paths that such a type knows, and whether it hides any field: a field that is not encoded again is unknown, unless it is empty.
func hidden(raw []byte, decoded runtime.Object) (known map[string]bool, hides bool, err error) {
	switch decoded.(type) {
	case *apiextensionsv1.CustomResourceDefinition, *apiextensionsv1beta1.CustomResourceDefinition:
	default:
		return nil, false, nil
	}
	encoded, err := json.Marshal(decoded)
	if err != nil {
		return nil, false, err
	}
	if patch, err := conversion.DiffPatch(encoded, raw); err == nil && patch == nil {
		return nil, false, nil // the cheap test
	}
	known = map[string]bool{}
	pick(parse(encoded), "", func(path string, _ any) bool {
		known[path] = true
		return false
	})
	return known, true, nil
}

// parse reads JSON, with numbers as they are spelled. Other documents have been refused before.
func parse(raw []byte) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return nil
	}
	return tree
}

// whole is a value in a rest that the object has nothing of.
type whole struct{ value any }

// pick returns the wanted members at any depth, and nil if there are none. Paths have the form of sigs.k8s.io/json.
func pick(v any, at string, wanted func(path string, v any) bool) any {
	switch v := v.(type) {
	case map[string]any:
		picked := map[string]any{}
		for name, member := range v {
			path := strings.TrimPrefix(at+"."+name, ".")
			if wanted(path, member) {
				picked[name] = whole{member}
			} else if below := pick(member, path, wanted); below != nil {
				picked[name] = below
			}
		}
		if len(picked) > 0 {
			return picked
		}
	case []any:
		return pickItems(v, at, wanted)
	}
	return nil
}

func pickItems(items []any, at string, wanted func(path string, v any) bool) any {
	picked, some := make([]any, len(items)), false
	for i, item := range items {
		if below := pick(item, at+"["+strconv.Itoa(i)+"]", wanted); below != nil {
			picked[i], some = below, true
		}
	}
	if !some {
		return nil
	}
	return picked
}

func join(object, rest any) any {
	switch rest := rest.(type) {
	case whole:
		return rest.value
	case map[string]any:
		o, ok := object.(map[string]any)
		if !ok {
			o = map[string]any{} // the type has left it out as empty
		}
		for name, v := range rest {
			o[name] = join(o[name], v)
		}
		return o
	case []any:
		o, ok := object.([]any)
		for i := range rest {
			if ok && i < len(o) {
				o[i] = join(o[i], rest[i])
			}
		}
	}
	return object
}

// isEmpty reports whether a Go type may leave out a value.
func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case json.Number:
		return v == "0"
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, member := range v {
			if !isEmpty(member) {
				return false
			}
		}
		return true
	}
	return false
}
