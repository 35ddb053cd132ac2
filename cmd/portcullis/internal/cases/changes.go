package cases

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// changes are values by the path of a field, as in spec.containers[0].image or metadata.labels["example.com/name"]. Null removes a field, and the index
// after the last one appends to a list.
type changes map[string]any

// maxSteps bounds the steps of a path.
const maxSteps = 64

// step is a step of a path: a name, or an index of a list.
type step struct {
	name  string
	index int // -1 for a name
}

// UnmarshalJSON implements [json.Unmarshaler].
func (c *changes) UnmarshalJSON(raw []byte) error {
	var values map[string]any
	if err := utiljson.Unmarshal(raw, &values); err != nil {
		return errors.New("must be a mapping of field paths to values")
	}
	for path := range values {
		if _, err := parsePath(path); err != nil {
			return fmt.Errorf("%q: %w", path, err)
		}
	}
	*c = values
	if values == nil {
		*c = changes{}
	}
	return nil
}

// apply returns a changed object. The object stays as it is.
func (c *changes) apply(object map[string]any) (map[string]any, error) {
	var changed any = runtime.DeepCopyJSON(object)
	for _, path := range c.paths() {
		steps, err := parsePath(path)
		if err == nil {
			changed, err = set(changed, steps, runtime.DeepCopyJSONValue((*c)[path]))
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", path, err)
		}
	}
	made, _ := changed.(map[string]any) // a path has a step
	return made, nil
}

// paths are the paths in the order of changes: a parent first, indexes in their order, and items of a list that are removed last.
func (c *changes) paths() []string {
	return slices.SortedFunc(maps.Keys(*c), func(a, b string) int {
		if removed := (*c)[a] == nil; removed != ((*c)[b] == nil) {
			if removed {
				return 1
			}
			return -1
		} else if removed {
			a, b = b, a // the last item of a list goes first
		}
		of, _ := parsePath(a)
		other, _ := parsePath(b)
		return slices.CompareFunc(of, other, func(a, b step) int { return cmp.Or(a.index-b.index, strings.Compare(a.name, b.name)) })
	})
}

// parsePath cuts a path into its steps.
func parsePath(path string) (steps []step, err error) {
	for rest := path; rest != ""; {
		if len(steps) == maxSteps {
			return nil, fmt.Errorf("a path has at most %d steps", maxSteps)
		}
		if rest[0] == '[' {
			var inner string
			if inner, rest, err = bracket(rest); err != nil {
				return nil, err
			}
			steps = append(steps, stepOf(inner))
			rest = strings.TrimPrefix(rest, ".")
			continue
		}
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		if end == 0 {
			return nil, errors.New("a name is missing between two dots")
		}
		steps = append(steps, step{rest[:end], -1})
		rest = strings.TrimPrefix(rest[end:], ".")
	}
	if len(steps) == 0 {
		return nil, errors.New("it names no field")
	}
	return steps, nil
}

// bracket takes the text in the brackets that a path begins with. A text in quotes may have brackets.
func bracket(path string) (inner, rest string, err error) {
	end := "]"
	if strings.HasPrefix(path, `["`) {
		end = `"]`
	}
	inner, rest, ok := strings.Cut(path[len(end):], end)
	if !ok {
		return "", "", fmt.Errorf("%s is missing at its end", end)
	}
	if end != "]" {
		inner = `"` + inner
	}
	return inner, rest, nil
}

// stepOf is a step in brackets: a name in quotes, an index, or another name.
func stepOf(inner string) step {
	if name, ok := strings.CutPrefix(inner, `"`); ok {
		return step{name, -1}
	}
	if i, err := strconv.Atoi(inner); err == nil && i >= 0 {
		return step{"", i}
	}
	return step{inner, -1}
}

// set sets the value at a path below a node, and returns the node. A node that is not there is made; nil removes.
func set(node any, steps []step, value any) (any, error) {
	if len(steps) == 0 {
		return value, nil
	}
	next := steps[0]
	if next.index >= 0 {
		list, ok := node.([]any)
		if !ok && node != nil {
			return nil, fmt.Errorf("[%d]: it stands in no list", next.index)
		}
		return setItem(list, next.index, steps[1:], value)
	}
	fields, ok := node.(map[string]any)
	if !ok && node != nil {
		return nil, fmt.Errorf("%s: it stands in no mapping", next.name)
	}
	child, there := fields[next.name]
	if value == nil && !there {
		return nil, fmt.Errorf("%s: there is no such field to remove", next.name)
	}
	if value == nil && len(steps) == 1 {
		delete(fields, next.name)
		return fields, nil
	}
	child, err := set(child, steps[1:], value)
	if err != nil {
		return nil, err
	}
	if fields == nil {
		fields = map[string]any{}
	}
	fields[next.name] = child
	return fields, nil
}

// setItem is set for an item of a list.
func setItem(list []any, i int, rest []step, value any) (any, error) {
	switch {
	case i > len(list), i == len(list) && value == nil:
		return nil, fmt.Errorf("[%d]: the list has %d items", i, len(list))
	case value == nil && len(rest) == 0:
		return slices.Delete(list, i, i+1), nil
	case i == len(list):
		list = append(list, nil)
	}
	item, err := set(list[i], rest, value)
	list[i] = item
	return list, err
}
