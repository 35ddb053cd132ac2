package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"unicode/utf8"
)

// document is a JSON value. A value that was read is split into its members or items on first use: members that a change leaves alone
// are compared as text and never decoded.
type document struct {
	text    []byte               // as it was read; nil for a value that was made
	members map[string]*document // of an object, once it is split or made
	items   []*document          // of a list, likewise
}

// read returns the document of a text, which must be JSON and must not change.
func read(text []byte) (*document, error) {
	if !json.Valid(text) {
		return nil, errors.New("the document is not JSON")
	}
	return &document{text: bytes.TrimSpace(text)}, nil
}

// isObject reports whether the value is an object; nil is none.
func (d *document) isObject() bool {
	return d != nil && (d.members != nil || d.text != nil && d.text[0] == '{')
}

// isList reports whether the value is a list; nil is none.
func (d *document) isList() bool {
	return d != nil && (d.items != nil || d.text != nil && d.text[0] == '[')
}

func (d *document) isEmptyText() bool { return string(d.text) == `""` }

// object returns the members of an object, which must not be written; none of anything else. Of two members of one name the last counts.
func (d *document) object() map[string]*document {
	if !d.isObject() {
		return nil
	}
	if d.members == nil {
		d.members = map[string]*document{}
		for rest := d.text[1:]; ; {
			var name, value []byte
			if name, rest = next(rest); name == nil {
				break
			}
			value, rest = next(rest)
			d.members[unquoted(name)] = &document{text: value}
		}
	}
	return d.members
}

// list returns the items of a list, which must not be written; none of anything else.
func (d *document) list() []*document {
	if !d.isList() {
		return nil
	}
	if d.items == nil {
		d.items = []*document{}
		for rest := d.text[1:]; ; {
			var item []byte
			if item, rest = next(rest); item == nil {
				break
			}
			d.items = append(d.items, &document{text: item})
		}
	}
	return d.items
}

// MarshalJSON writes a value that was read as it was read.
func (d *document) MarshalJSON() ([]byte, error) {
	switch {
	case d.text != nil:
		return d.text, nil
	case d.members != nil:
		return json.Marshal(d.members)
	default:
		return json.Marshal(d.items)
	}
}

// equal reports whether two values are the same: numbers by their spelling. nil, for a value that is absent, equals nothing.
func equal(a, b *document) bool {
	switch {
	case a == nil || b == nil:
		return false
	case a == b, a.text != nil && bytes.Equal(a.text, b.text):
		return true
	case a.isObject():
		return b.isObject() && maps.EqualFunc(a.object(), b.object(), equal)
	case a.isList():
		return b.isList() && slices.EqualFunc(a.list(), b.list(), equal)
	default: // Both were read: the values that are made are objects and lists.
		return a.text[0] == '"' && b.text != nil && b.text[0] == '"' && unquoted(a.text) == unquoted(b.text)
	}
}

// unquoted returns the text of a JSON string.
func unquoted(quoted []byte) string {
	if inside := quoted[1 : len(quoted)-1]; utf8.Valid(inside) && bytes.IndexByte(inside, '\\') < 0 {
		return string(inside)
	}
	var text string
	_ = json.Unmarshal(quoted, &text) // It is valid.
	return text
}

// next returns the first value in the inside of a list or an object, and the text behind it; nil at the end. The text is valid JSON.
func next(inside []byte) (value, rest []byte) {
	start := 0
	for ; ; start++ {
		switch inside[start] {
		case ' ', '\t', '\r', '\n', ',', ':':
			continue
		case ']', '}':
			return nil, nil
		}
		break
	}
	end := start
	for depth := 0; ; {
		switch inside[end] {
		case '"':
			for end++; inside[end] != '"'; end++ {
				if inside[end] == '\\' {
					end++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		end++
		if depth == 0 && (inside[end-1] == '"' || inside[end-1] == '}' || inside[end-1] == ']' || ends(inside[end])) {
			return inside[start:end:end], inside[end:]
		}
	}
}

// ends reports whether a byte behind a number or a word ends it.
func ends(b byte) bool {
	switch b {
	case ' ', '\t', '\r', '\n', ',', ']', '}':
		return true
	default:
		return false
	}
}
