package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// lineIndex finds the lines of fields in one document.
type lineIndex struct {
	root *yaml.Node // nil when the text cannot be read as YAML nodes
	line int        // of the file, where the document begins
	last int        // of the file, where it ends
	err  error      // of reading the text as YAML nodes
}

// newLineIndex reads the document for its lines. JSON on a single line, as stores keep it, has nothing to look for.
func newLineIndex(t text) *lineIndex {
	p := &lineIndex{line: t.line, last: t.line + bytes.Count(t.data, []byte("\n"))}
	if t.json && p.last == p.line {
		return p
	}
	var doc yaml.Node
	if p.err = yaml.Unmarshal(t.data, &doc); p.err == nil && len(doc.Content) > 0 {
		p.root = doc.Content[0]
	}
	return p
}

// lineOf is the line of the file on which the field stands, or else the innermost of its parents that is there. Of a
// field that stands there twice it is the second.
func (p *lineIndex) lineOf(path string) int {
	if p.root == nil {
		return p.line
	}
	node, line := p.root, p.root.Line
	for _, step := range steps(path) {
		key, value := child(node, step)
		if value == nil {
			break
		}
		node, line = value, key.Line
	}
	return p.inFile(line)
}

// fieldLines are the lines of the file on which the fields of the mapping at path stand, by their names.
func (p *lineIndex) fieldLines(path string) map[string]int {
	node := p.root
	for _, step := range steps(path) {
		if node != nil {
			_, node = child(node, step)
		}
	}
	lines := map[string]int{}
	if node != nil && node.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(node.Content); i += 2 {
			lines[node.Content[i].Value] = p.inFile(node.Content[i].Line)
		}
	}
	return lines
}

// inFile is a line of the document as a line of the file. YAML knows more ends of lines than editors do, so its count may
// lie behind the end.
func (p *lineIndex) inFile(line int) int { return min(p.line+line-1, p.last) }

// steps cuts a path as Kubernetes writes it: a.b[0].c[key.with.dots].
func steps(path string) []string {
	var all []string
	for path != "" {
		switch {
		case path[0] == '.':
			path = path[1:]
		case path[0] == '[':
			inner, rest, _ := strings.Cut(path[1:], "]")
			all, path = append(all, inner), rest
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			all, path = append(all, path[:end]), path[end:]
		}
	}
	return all
}

// child is the entry of node that step names: the node that carries its line, and its value.
func child(node *yaml.Node, step string) (key, value *yaml.Node) {
	switch node.Kind {
	case yaml.AliasNode:
		return child(node.Alias, step)
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i]
		}
	case yaml.MappingNode:
		for i := len(node.Content) - 2; i >= 0; i -= 2 {
			if node.Content[i].Value == step {
				return node.Content[i], node.Content[i+1]
			}
		}
	default: // a scalar has no children
	}
	return nil, nil
}

// duplicate is a field that stands twice in one mapping.
type duplicate struct {
	path string
	// first is the line of the file on which it stood before.
	first int
}

// duplicates are the fields that stand in their mapping for the second time or more, in order.
func (p *lineIndex) duplicates() []duplicate {
	var found []duplicate
	var walk func(node *yaml.Node, path string)
	walk = func(node *yaml.Node, path string) {
		switch node.Kind {
		case yaml.SequenceNode:
			for i, item := range node.Content {
				walk(item, path+"["+strconv.Itoa(i)+"]")
			}
		case yaml.MappingNode:
			seen := map[string]int{}
			for i := 0; i+1 < len(node.Content); i += 2 {
				name := node.Content[i].Value
				at := join(path, name)
				if first, ok := seen[name]; ok {
					found = append(found, duplicate{at, p.inFile(first)})
				} else {
					seen[name] = node.Content[i].Line
				}
				walk(node.Content[i+1], at)
			}
		default: // the target of an alias is examined where it is written
		}
	}
	if p.root != nil {
		walk(p.root, "")
	}
	return found
}

// join appends the name of a field to a path.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// pathAt is the path of the value that ends at, or holds, the offset of a JSON document.
func pathAt(doc []byte, offset int64) string {
	w := jsonWalk{dec: json.NewDecoder(bytes.NewReader(doc)), offset: offset}
	path, _ := w.value("")
	return path
}

// jsonWalk looks for the value at an offset.
type jsonWalk struct {
	dec    *json.Decoder
	offset int64
}

// value reads one value at path. It reports true when that, or a value in it, is the one.
func (w *jsonWalk) value(path string) (string, bool) {
	tok, err := w.dec.Token()
	if err != nil || w.dec.InputOffset() >= w.offset {
		return path, true
	}
	open, ok := tok.(json.Delim)
	if !ok {
		return "", false
	}
	for i := 0; w.dec.More(); i++ {
		at := path + "[" + strconv.Itoa(i) + "]"
		if open == '{' {
			name, err := w.dec.Token()
			if err != nil {
				return path, true
			}
			at = join(path, fmt.Sprint(name))
		}
		if found, ok := w.value(at); ok {
			return found, true
		}
	}
	_, err = w.dec.Token()
	return path, err != nil || w.dec.InputOffset() >= w.offset
}
