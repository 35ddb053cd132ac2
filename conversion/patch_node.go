package conversion

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// patchNode is one value of a document that is being patched. A value outside every path keeps its bytes. A nil node is a null that stands in the
// document.
type patchNode struct {
	// raw is the value as it stands; nil for the null of an operation, which no path leads into either.
	raw []byte
	// kind is '{' or '[' once the value is open: members or items count then. It is 0 before.
	kind    byte
	members map[string]*patchNode
	items   []*patchNode
}

// pointerBytes is the work of moving one item of an array, when an item in front of it is added or removed.
const pointerBytes = 8

// open reads one level of an object or array; false when the node is neither. The copy of a null counts as an object that has no
// place for members, as it does for the library.
func (p *patcher) open(n *patchNode) bool {
	switch {
	case n == nil || n.kind == 0 && len(n.raw) == 0:
		return false
	case n.kind != 0:
		return true
	}
	switch n.raw[0] {
	case '{', '[':
		p.read(n)
		return p.err == nil
	case 'n':
		n.kind = '{'
		return true
	}
	return false
}

func (p *patcher) read(n *patchNode) {
	if p.spend(len(n.raw)); p.err != nil {
		return
	}
	s := Scanner{data: n.raw}
	if n.kind = n.raw[0]; n.kind == '[' {
		for range s.Items {
			n.items = append(n.items, p.node(s.Skip()))
		}
	} else {
		n.members = make(map[string]*patchNode)
		for name := range s.Members {
			n.members[string(name)] = p.node(s.Skip())
		}
	}
	s.End()
	p.err = s.err
}

// node makes a node of a value as it stands. Nodes are allocated many at a time.
func (p *patcher) node(raw []byte) *patchNode {
	if string(raw) == "null" {
		return nil
	}
	if len(p.spare) == 0 {
		p.spare = make([]patchNode, min(max(8, p.nodes), 512))
	}
	n := &p.spare[0]
	p.spare = p.spare[1:]
	p.nodes++
	n.raw = raw
	return n
}

// get is a member or an item of an open node; a member that is not there is nil.
func (n *patchNode) get(key string) (*patchNode, error) {
	if n.kind == '{' {
		return n.members[key], nil
	}
	at, err := index(key, len(n.items))
	if err != nil {
		return nil, err
	}
	if at >= len(n.items) {
		return nil, invalidIndex(at)
	}
	return n.items[at], nil
}

func (n *patchNode) set(key string, v *patchNode) error {
	if n.kind == '{' {
		return n.setMember(key, v)
	}
	at, err := index(key, len(n.items))
	if err == nil {
		n.items[at] = v
	}
	return err
}

func (n *patchNode) setMember(key string, v *patchNode) error {
	if n.members == nil {
		return fmt.Errorf("a null has no member %s", key)
	}
	n.members[key] = v
	return nil
}

func (p *patcher) add(n *patchNode, key string, v *patchNode) error {
	switch {
	case n.kind == '{':
		return n.setMember(key, v)
	case key == "-":
		n.items = append(n.items, v)
		return nil
	}
	at, err := index(key, len(n.items)+1)
	switch {
	case err != nil:
		return fmt.Errorf("value was not a proper array index: '%s': %w", key, err)
	case at > len(n.items):
		return invalidIndex(at)
	}
	p.spend(pointerBytes * (len(n.items) - at))
	n.items = slices.Insert(n.items, at, v)
	return nil
}

func (p *patcher) remove(n *patchNode, key string) error {
	if n.kind == '{' {
		if _, ok := n.members[key]; !ok {
			return fmt.Errorf("Unable to remove nonexistent key: %s: %w", key, errMissing) //nolint:staticcheck // as the library says it
		}
		delete(n.members, key)
		return nil
	}
	at, err := index(key, len(n.items))
	switch {
	case err != nil:
		return err
	case at >= len(n.items):
		return invalidIndex(at)
	}
	p.spend(pointerBytes * (len(n.items) - at))
	n.items = slices.Delete(n.items, at, at+1)
	return nil
}

// index reads an index into n items; a negative one counts from the end. It may be n or more.
func index(key string, n int) (int, error) {
	at, err := strconv.Atoi(key)
	switch {
	case err != nil:
		return 0, err
	case at < -n:
		return 0, invalidIndex(at)
	case at < 0:
		return at + n, nil
	}
	return at, nil
}

func invalidIndex(at int) error {
	return fmt.Errorf("Unable to access invalid index: %d: invalid index referenced", at) //nolint:staticcheck // as the library says it
}

// equal is the comparison of "test": numbers and strings by their spelling. Nulls in arrays are equal to nothing: the library
// panics at them.
func (p *patcher) equal(a, b *patchNode) bool {
	if a == nil || b == nil {
		return false
	}
	if !p.open(a) {
		return b.kind == 0 && bytes.Equal(a.raw, b.raw)
	}
	if !p.open(b) || a.kind != b.kind || len(a.items) != len(b.items) || len(a.members) != len(b.members) {
		return false
	}
	for i := range a.items {
		if !p.equal(a.items[i], b.items[i]) {
			return false
		}
	}
	for name, v := range a.members {
		other, ok := b.members[name]
		if !ok || (v != nil || other != nil) && !p.equal(v, other) {
			return false
		}
	}
	return true
}

// patchNode writes a value without white space.
func (w *jsonWriter) patchNode(n *patchNode) {
	switch {
	case n == nil, n.kind == 0 && n.raw == nil, n.kind == '{' && n.members == nil:
		*w = append(*w, "null"...)
	case n.kind == 0:
		*w = appendCompact(*w, n.raw)
	case n.kind == '[':
		w.raw('[')
		for _, item := range n.items {
			w.element()
			w.patchNode(item)
		}
		w.raw(']')
	default:
		w.raw('{')
		for _, name := range slices.Sorted(maps.Keys(n.members)) {
			w.element()
			quoted, _ := json.Marshal(name) //nolint:errchkjson // a string can always be written
			*w = append(append(*w, quoted...), ':')
			w.patchNode(n.members[name])
		}
		w.raw('}')
	}
}

// appendCompact appends a valid document without the white space between its tokens.
func appendCompact(dst, document []byte) []byte {
	for i := 0; i < len(document); {
		switch c := document[i]; c {
		case ' ', '\t', '\r', '\n':
			i++
		case '"':
			n := stringLength(document[i:])
			dst = append(dst, document[i:i+n]...)
			i += n
		default:
			dst = append(dst, c)
			i++
		}
	}
	return dst
}

// stringLength is the length of the string that a valid document begins with, with its quotes.
func stringLength(document []byte) int {
	for i := 1; i < len(document); {
		i += plain(document[i:])
		switch {
		case i >= len(document):
		case document[i] == '"':
			return i + 1
		case document[i] == '\\':
			i += 2 // of \u the digits are plain
		default:
			i++
		}
	}
	return len(document)
}

// escapeHTML escapes the characters that encoding/json escapes in strings: <, >, &, U+2028 and U+2029.
func escapeHTML(document []byte) []byte {
	plain := bytes.IndexByte(document, '<') < 0 && bytes.IndexByte(document, '>') < 0 && bytes.IndexByte(document, '&') < 0 &&
		!bytes.Contains(document, []byte("\u2028")) && !bytes.Contains(document, []byte("\u2029"))
	if plain {
		return document
	}
	var b bytes.Buffer
	json.HTMLEscape(&b, document)
	return b.Bytes()
}
