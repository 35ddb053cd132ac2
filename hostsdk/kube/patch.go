package kube

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// difference returns the JSON Patch (RFC 6902) that makes the change from before to after in raw; nil for no change.
// raw holds the fields of before, and perhaps more: members that the types of before do not know, and fewer empty ones.
func difference(raw, before, after []byte) ([]byte, error) {
	var trees [3]any
	for i, document := range [][]byte{raw, before, after} {
		decoder := json.NewDecoder(bytes.NewReader(document))
		decoder.UseNumber() // Numbers keep their spelling.
		if err := decoder.Decode(&trees[i]); err != nil {
			return nil, err
		}
	}
	var d differ
	d.value(trees[0], trees[1], trees[2])
	if len(d.operations) == 0 {
		return nil, nil
	}
	return json.Marshal(d.operations)
}

// operation is one operation of a patch. Value is a pointer to tell null from an absent value.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from,omitempty"`
	Value *any   `json:"value,omitempty"`
}

// differ walks down three documents at once and collects operations.
type differ struct {
	operations []operation
	path       string // JSON pointer to where it stands
}

// descend calls visit one step further down.
func (d *differ) descend(token string, visit func()) {
	above := d.path
	d.path = d.child(token)
	visit()
	d.path = above
}

// child returns the JSON pointer one step further down.
func (d *differ) child(token string) string {
	return d.path + "/" + strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
}

func (d *differ) write(op, path string, value any) {
	d.operations = append(d.operations, operation{Op: op, Path: path, Value: &value})
}

// value changes this value of raw by the difference between from and to.
func (d *differ) value(raw, from, to any) {
	if reflect.DeepEqual(from, to) {
		return
	}
	switch raw := raw.(type) {
	case map[string]any:
		if next, ok := to.(map[string]any); ok {
			members, _ := from.(map[string]any) // None when the types left an empty object out.
			d.members(raw, members, next)
			return
		}
	case []any:
		items, wasList := from.([]any)
		if next, ok := to.([]any); ok && wasList && len(raw) == len(items) {
			d.items(raw, items, next)
			return
		}
	}
	d.write("replace", d.path, delta(from, to))
}

func (d *differ) members(raw, from, to map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(from)) {
		_, stays := to[name]
		if _, present := raw[name]; present && !stays {
			d.operations = append(d.operations, operation{Op: "remove", Path: d.child(name)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(to)) {
		was, had := from[name]
		if had && reflect.DeepEqual(was, to[name]) {
			continue
		}
		if present, ok := raw[name]; ok {
			d.descend(name, func() { d.value(present, was, to[name]) })
		} else {
			d.write("add", d.child(name), delta(was, to[name]))
		}
	}
}

// delta returns the members that to adds to from: types write empty members that raw lacks, and that it should not get.
func delta(from, to any) any {
	was, wasMap := from.(map[string]any)
	next, isMap := to.(map[string]any)
	if !wasMap || !isMap {
		return to
	}
	added := map[string]any{}
	for name, value := range next {
		if old, had := was[name]; !had || !reflect.DeepEqual(old, value) {
			added[name] = delta(old, value)
		}
	}
	return added
}

// items changes a list. Items that stay keep their unknown fields, wherever the handler put them.
func (d *differ) items(raw, from, to []any) {
	origin := origins(from, to)
	kept := make([]bool, len(from))
	for _, i := range origin {
		if i >= 0 {
			kept[i] = true
		}
	}
	var now []int // Where the items of raw stand while the operations are carried out.
	for i := len(from) - 1; i >= 0; i-- {
		if kept[i] {
			now = append(now, i)
		} else { // From the end, so that no index moves before it is used.
			d.operations = append(d.operations, operation{Op: "remove", Path: d.child(strconv.Itoa(i))})
		}
	}
	slices.Reverse(now)
	for j, i := range origin {
		if i < 0 {
			d.write("add", d.child(strconv.Itoa(j)), to[j])
			now = slices.Insert(now, j, -1)
			continue
		}
		if at := j + slices.Index(now[j:], i); at != j { // The items in front of j are in place.
			d.operations = append(d.operations, operation{
				Op: "move", From: d.child(strconv.Itoa(at)), Path: d.child(strconv.Itoa(j)),
			})
			now = slices.Insert(slices.Delete(now, at, at+1), j, i)
		}
		d.descend(strconv.Itoa(j), func() { d.value(raw[i], from[i], to[j]) })
	}
}
