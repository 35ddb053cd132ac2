package conversion

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
)

// Carry returns base with what is different between from and to, three JSON objects of one kind; from is base as somebody
// else writes it: with defaults, without what is empty, without fields that he does not know, or with the items of an
// array in another order. What from and to have in common stays as it is in base, also what neither of them has.
//
// So an object of a newer cluster loses nothing on the way to a hook in another version and back: base is the object,
// from is it converted to the other version and back, to is what the hook made of it, converted back.
func Carry(base, from, to []byte) ([]byte, error) {
	var trees [3]any
	for i, raw := range [][]byte{base, from, to} {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber() // numbers keep their spelling
		if err := d.Decode(&trees[i]); err != nil {
			return nil, fmt.Errorf("carry changes over: %w", err)
		}
	}
	return json.Marshal(carry(trees[0], trees[1], trees[2]))
}

// absent stands for a member that is not there.
type absent struct{}

// carry is Carry for one value.
func carry(base, from, to any) any {
	if reflect.DeepEqual(to, from) || reflect.DeepEqual(to, base) {
		return base
	}
	switch to := to.(type) {
	case map[string]any:
		b, isB := base.(map[string]any)
		f, isF := from.(map[string]any)
		if isB && isF {
			return carryMembers(b, f, to)
		}
	case []any:
		b, isB := base.([]any)
		f, isF := from.([]any)
		if isB && isF {
			if aligned, ok := align(b, f); ok {
				return carryItems(aligned, f, to)
			}
		}
	}
	return to
}

func carryMembers(base, from, to map[string]any) map[string]any {
	out := make(map[string]any, len(base))
	for _, members := range []map[string]any{base, to} {
		for name := range members {
			if _, done := out[name]; done {
				continue
			}
			v := carry(member(base, name), member(from, name), member(to, name))
			if _, gone := v.(absent); !gone {
				out[name] = v
			}
		}
	}
	return out
}

func member(of map[string]any, name string) any {
	if v, ok := of[name]; ok {
		return v
	}
	return absent{}
}

// align returns the items of base in the order of from; false when they are not the same items.
func align(base, from []any) ([]any, bool) {
	if len(base) != len(from) {
		return nil, false
	}
	aligned, taken := make([]any, len(base)), make([]bool, len(base))
	for i := range from {
		for step := range base {
			at := (i + step) % len(base) // mostly it is where it was
			if !taken[at] && rewritten(base[at], from[i]) {
				aligned[i], taken[at] = base[at], true
				break
			}
		}
		if aligned[i] == nil {
			return nil, false
		}
	}
	return aligned, true
}

// rewritten says whether from can be what somebody else makes of base.
func rewritten(base, from any) bool {
	switch from := from.(type) {
	case map[string]any:
		b, ok := base.(map[string]any)
		for name, v := range from {
			if own, common := b[name]; common && !rewritten(own, v) {
				return false
			}
		}
		return ok
	case []any:
		b, ok := base.([]any)
		if ok {
			_, ok = align(b, from)
		}
		return ok
	}
	return base == from
}

// carryItems takes the items at both ends that are the same for those of base, and the others one by one. Item i of from
// is item i of base.
func carryItems(base, from, to []any) []any {
	same := func(i, j int) bool { return reflect.DeepEqual(to[i], from[j]) || reflect.DeepEqual(to[i], base[j]) }
	head, tail, short := 0, 0, min(len(from), len(to))
	for head < short && same(head, head) {
		head++
	}
	for tail < short-head && same(len(to)-1-tail, len(from)-1-tail) {
		tail++
	}
	out := append([]any{}, base[:head]...)
	for i := head; i < len(to)-tail; i++ {
		if i < len(from)-tail {
			out = append(out, carry(base[i], from[i], to[i]))
		} else {
			out = append(out, to[i])
		}
	}
	return append(out, base[len(base)-tail:]...)
}
