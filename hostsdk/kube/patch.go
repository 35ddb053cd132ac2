package kube

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxDepth is how many levels of a document are compared. Below them a value that differs is written as a whole, so that
	// the time for a comparison at each level stays linear in the size of the document.
	maxDepth = 64
	// smallPatch is how many bytes a patch may have whatever the size of the object.
	smallPatch = 64 << 10
)

// change returns the JSON Patch (RFC 6902) that makes the change from before to after in raw; nil for no change. raw holds the fields
// of before, and perhaps more: members that the types of before do not know, and fewer empty ones. docs/protocol.md, "Changes".
func change(raw, before, after []byte) ([]byte, error) {
	var documents [3]*document
	for i, text := range [][]byte{raw, before, after} {
		document, err := read(text)
		if err != nil {
			return nil, err
		}
		documents[i] = document
	}
	return difference(documents[0], merge(documents[0], documents[1], documents[2], 0))
}

// merge returns the value that raw becomes by the change from before to after. before is nil if it is absent.
func merge(raw, before, after *document, depth int) *document {
	switch {
	case equal(before, after):
		return raw
	case depth == maxDepth:
		return after
	case raw.isObject() && after.isObject():
		return mergeMembers(raw, before, after, depth)
	case raw.isList() && before.isList() && after.isList() && len(raw.list()) == len(before.list()):
		return mergeItems(raw.list(), before.list(), after.list(), depth)
	case string(raw.text) == "null":
		return added(before, after)
	default:
		return after
	}
}

func mergeMembers(raw, before, after *document, depth int) *document {
	members := maps.Clone(raw.object())
	for name := range before.object() { // None when the types left an empty object out.
		if after.object()[name] == nil {
			delete(members, name)
		}
	}
	for name, value := range after.object() {
		was := before.object()[name]
		switch present := raw.object()[name]; {
		case equal(was, value):
		case present != nil:
			members[name] = merge(present, was, value, depth+1)
		default:
			members[name] = added(was, value)
		}
	}
	return &document{members: members}
}

// mergeItems merges a list. Items that stay keep their unknown fields, wherever the handler put them.
func mergeItems(raw, before, after []*document, depth int) *document {
	items := make([]*document, len(after))
	for j, i := range origins(before, after) {
		if i < 0 {
			items[j] = after[j]
		} else {
			items[j] = merge(raw[i], before[i], after[j], depth+1)
		}
	}
	return &document{items: items}
}

// added returns the members that after adds to before: types write empty members that raw lacks, and that it should not get.
func added(before, after *document) *document {
	if !before.isObject() || !after.isObject() {
		return after
	}
	members := map[string]*document{}
	for name, value := range after.object() {
		if was := before.object()[name]; !equal(was, value) {
			members[name] = added(was, value)
		}
	}
	return &document{members: members}
}

// operation is one operation of a patch.
type operation struct {
	Op    string    `json:"op"`
	Path  string    `json:"path"`
	Value *document `json:"value,omitempty"`
}

// difference returns the JSON Patch that makes to of from; nil if they are equal. A patch of more than 64 KiB is no longer than to, but
// for the names of its members.
func difference(from, to *document) ([]byte, error) {
	patch, err := differenceTo(from, to, maxDepth)
	if err != nil || len(patch) <= smallPatch {
		return patch, err
	}
	object, err := json.Marshal(to)
	if err != nil || len(patch) <= len(object) {
		return patch, err
	}
	return differenceTo(from, to, 1)
}

func differenceTo(from, to *document, depth int) ([]byte, error) {
	d := differ{depth: depth}
	d.value(from, to)
	if len(d.operations) == 0 {
		return nil, nil
	}
	return json.Marshal(d.operations)
}

// differ walks down two documents at once and collects operations.
type differ struct {
	operations []operation
	path       string // JSON pointer to where it stands
	depth      int    // how many levels it may still go down
}

// descend writes the difference one step further down.
func (d *differ) descend(token string, from, to *document) {
	above := d.path
	d.path = d.child(token)
	d.depth--
	d.value(from, to)
	d.depth++
	d.path = above
}

// child returns the JSON pointer one step further down.
func (d *differ) child(token string) string {
	return d.path + "/" + strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
}

func (d *differ) write(op, path string, value *document) {
	d.operations = append(d.operations, operation{Op: op, Path: path, Value: value})
}

func (d *differ) remove(path string) {
	d.operations = append(d.operations, operation{Op: "remove", Path: path})
}

func (d *differ) value(from, to *document) {
	switch {
	case equal(from, to):
	case d.depth > 0 && from.isObject() && to.isObject():
		d.members(from.object(), to.object())
	case d.depth > 0 && from.isList() && to.isList() && d.items(from.list(), to.list()):
	default:
		d.write("replace", d.path, to)
	}
}

func (d *differ) members(from, to map[string]*document) {
	names := slices.AppendSeq(slices.Collect(maps.Keys(from)), maps.Keys(to))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		switch was, is := from[name], to[name]; {
		case is == nil:
			d.remove(d.child(name))
		case was == nil:
			d.write("add", d.child(name), is)
		default:
			d.descend(name, was, is)
		}
	}
}

// items writes the difference of two lists, or nothing and false if items have changed places.
func (d *differ) items(from, to []*document) bool {
	origin := origins(from, to)
	kept := make([]bool, len(from))
	last := -1
	for _, i := range origin {
		if i < 0 {
			continue
		}
		if i < last {
			return false
		}
		kept[i], last = true, i
	}
	for i := len(from) - 1; i >= 0; i-- { // From the end, so that no index moves before it is used.
		if !kept[i] {
			d.remove(d.child(strconv.Itoa(i)))
		}
	}
	for j, i := range origin {
		if i < 0 {
			d.write("add", d.child(strconv.Itoa(j)), to[j])
		} else {
			d.descend(strconv.Itoa(j), from[i], to[j])
		}
	}
	return true
}
