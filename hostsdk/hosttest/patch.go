package hosttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// operation is an operation of a JSON Patch (RFC 6902).
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	From  string          `json:"from"`
	Value json.RawMessage `json:"value"`
}

// patched returns an object with a patch applied. It uses no library, since each host would require it.
func patched(object, patch []byte) ([]byte, error) {
	if len(patch) == 0 {
		return object, nil
	}
	root, err := decode(object)
	if err != nil {
		return nil, err
	}
	var operations []operation
	if err := json.Unmarshal(patch, &operations); err != nil {
		return nil, err
	}
	for _, o := range operations {
		if root, err = o.apply(root); err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.Op, o.Path, err)
		}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err = encoder.Encode(root)
	return bytes.TrimSpace(text.Bytes()), err
}

// decode decodes JSON. Numbers stay as they are written: none is rounded.
func decode(text []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

func (o *operation) apply(root any) (any, error) {
	value, err := o.operand(root)
	if err != nil {
		return nil, err
	}
	switch o.Op {
	case "test":
		if there, err := find(root, o.Path); err != nil || !reflect.DeepEqual(there, value) {
			return nil, errors.Join(err, fmt.Errorf("the value is %v", there))
		}
		return root, nil
	case "remove", "replace":
		if o.Path == "" {
			return value, nil
		}
		root, err = edit(root, tokens(o.Path), remove)
	case "move":
		root, err = edit(root, tokens(o.From), remove)
	case "add", "copy":
	default:
		return nil, fmt.Errorf("unknown operation %q", o.Op)
	}
	if err != nil || o.Op == "remove" {
		return root, err
	}
	if o.Path == "" {
		return value, nil
	}
	return edit(root, tokens(o.Path), func(parent any, token string) (any, error) { return add(parent, token, value) })
}

// operand is the value of an operation: its own value, or a copy of the value at another path.
func (o *operation) operand(root any) (any, error) {
	text := o.Value
	switch o.Op {
	case "remove":
		return nil, nil //nolint:nilnil // it has none
	case "move", "copy":
		there, err := find(root, o.From)
		if err != nil {
			return nil, err
		}
		if text, err = json.Marshal(there); err != nil {
			return nil, err
		}
	}
	return decode(text)
}

// tokens are the names of a JSON pointer (RFC 6901).
func tokens(path string) []string {
	names := strings.Split(path, "/")[1:]
	for i, name := range names {
		names[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
	}
	return names
}

func find(value any, path string) (any, error) {
	if path == "" {
		return value, nil
	}
	for _, token := range tokens(path) {
		var err error
		if value, err = member(value, token); err != nil {
			return nil, err
		}
	}
	return value, nil
}

func member(parent any, token string) (any, error) {
	switch p := parent.(type) {
	case map[string]any:
		if value, ok := p[token]; ok {
			return value, nil
		}
	case []any:
		if i, err := strconv.Atoi(token); err == nil && 0 <= i && i < len(p) {
			return p[i], nil
		}
	}
	return nil, fmt.Errorf("there is no %q", token)
}

// edit returns value with its part at a path changed; change gets the parent of the part, and returns it.
func edit(value any, path []string, change func(parent any, token string) (any, error)) (any, error) {
	if len(path) == 0 {
		return nil, errors.New("the path is empty or has no slash in front")
	}
	if len(path) == 1 {
		return change(value, path[0])
	}
	child, err := member(value, path[0])
	if err != nil {
		return nil, err
	}
	if child, err = edit(child, path[1:], change); err != nil {
		return nil, err
	}
	switch parent := value.(type) {
	case map[string]any:
		parent[path[0]] = child
	case []any:
		i, _ := strconv.Atoi(path[0]) // member has read it
		parent[i] = child
	}
	return value, nil
}

func remove(parent any, token string) (any, error) {
	if _, err := member(parent, token); err != nil {
		return nil, err
	}
	if object, ok := parent.(map[string]any); ok {
		delete(object, token)
		return object, nil
	}
	i, _ := strconv.Atoi(token) // member has read it
	return slices.Delete(parent.([]any), i, i+1), nil
}

func add(parent any, token string, value any) (any, error) {
	switch p := parent.(type) {
	case map[string]any:
		p[token] = value
		return p, nil
	case []any:
		if token == "-" {
			return append(p, value), nil
		}
		if i, err := strconv.Atoi(token); err == nil && 0 <= i && i <= len(p) {
			return slices.Insert(p, i, value), nil
		}
	}
	return nil, fmt.Errorf("there is no place %q", token)
}
