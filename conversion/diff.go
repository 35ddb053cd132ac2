package conversion

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxDiffDepth is how deep DiffPatch looks for the smallest difference; a difference further down replaces the value at
// this depth. It bounds the work, for arrays are compared anew at each level.
const maxDiffDepth = 64

// diffRoom bounds a difference, in bytes, for documents of any size. A difference longer than that and twice the documents would be longer than its
// result. Then DiffPatch replaces the differing members of the object as a whole. Each operation repeats its path: a difference can be as long as the
// longest path times the number of items.
const diffRoom = 64 << 10

// DiffPatch returns an RFC 6902 patch that makes to of from, two raw JSON objects; nil when they are the same, by the rule of Patched.Changed.
// Objects are compared member by member. Equal items at both ends of arrays are left alone, and the rest is compared item by item. Values appear in
// the patch as they stand in to: numbers keep their spelling. The result refers to neither argument.
//
// It is our own so that the patch of two objects is the same each time, and nil exactly when ApplyPatch sees no change: gomodules.xyz/jsonpatch
// writes operations in random order and tells 1.0 from 1.00. It is also several times faster.
func DiffPatch(from, to []byte) ([]byte, error) {
	a, err := parseObject(from)
	if err != nil {
		return nil, fmt.Errorf("diff from: %w", err)
	}
	b, err := parseObject(to)
	if err != nil {
		return nil, fmt.Errorf("diff to: %w", err)
	}
	d := differ{depth: maxDiffDepth, limit: diffRoom + 2*(len(from)+len(to))}
	if d.value(&a, &b); len(d.patch) > d.limit {
		d = differ{depth: 1, limit: math.MaxInt}
		d.value(&a, &b)
	}
	if len(d.patch) == 0 {
		return nil, nil
	}
	d.patch.close(']')
	return d.patch, nil
}

// differ collects operations while it walks down two documents.
type differ struct {
	patch jsonWriter
	path  []string // Escaped reference tokens to the place where it stands.
	depth int      // How deep it looks.
	limit int      // Past so many bytes it writes no more.
}

func (d *differ) value(a, b *node) {
	switch {
	case bytes.Equal(a.raw, b.raw):
	case a.kind == '{' && b.kind == '{' && len(d.path) < d.depth:
		d.members(a.elements(), b.elements())
	case a.kind == '[' && b.kind == '[' && len(d.path) < d.depth:
		d.items(a.elements(), b.elements())
	case !equal(a, b):
		d.operation("replace", b)
	}
}

func (d *differ) at(token string, visit func()) {
	d.path = append(d.path, token)
	visit()
	d.path = d.path[:len(d.path)-1]
}

func (d *differ) members(a, b []node) {
	joinMembers(a, b, func(name []byte, x, y *node) {
		d.at(token(name), func() {
			switch {
			case y == nil:
				d.operation("remove", nil)
			case x == nil:
				d.operation("add", y)
			default:
				d.value(x, y)
			}
		})
	})
}

func (d *differ) items(a, b []node) {
	first, last := sameEnds(len(a), len(b), func(i, j int) bool { return equal(&a[i], &b[j]) })
	a, b = a[first:len(a)-last], b[first:len(b)-last]
	for i := range min(len(a), len(b)) {
		d.at(strconv.Itoa(first+i), func() { d.value(&a[i], &b[i]) })
	}
	for i := len(a) - 1; i >= len(b); i-- { // From the end, so that no index moves before it is used.
		d.at(strconv.Itoa(first+i), func() { d.operation("remove", nil) })
	}
	for i := len(a); i < len(b); i++ {
		d.at(strconv.Itoa(first+i), func() { d.operation("add", &b[i]) })
	}
}

// operation writes one operation on the place where d stands; value is nil when it has none.
func (d *differ) operation(op string, value *node) {
	if len(d.patch) > d.limit {
		return
	}
	if len(d.patch) == 0 {
		d.patch.raw('[')
	}
	d.patch.open('{')
	d.patch.text("op", op)
	d.patch.text("path", "/"+strings.Join(d.path, "/"))
	if value != nil {
		d.patch.name("value")
		d.patch.raw(value.raw...)
	}
	d.patch.close('}')
}

// token escapes a name for a JSON pointer (RFC 6901).
func token(name []byte) string {
	return strings.ReplaceAll(strings.ReplaceAll(string(name), "~", "~0"), "/", "~1")
}
