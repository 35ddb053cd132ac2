package conversion_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/conversion"
)

func TestMerge(t *testing.T) {
	for name, tt := range map[string]struct {
		base, ours, theirs string
		want               string // or the field of a conflict
	}{
		"neither changes":               {`{"a":1}`, `{"a":1}`, `{"a":1}`, `{"a":1}`},
		"ours alone":                    {`{"a":1}`, `{"a":2}`, `{"a":1}`, `{"a":2}`},
		"theirs alone":                  {`{"a":1}`, `{"a":1}`, `{"a":2}`, `{"a":2}`},
		"other members":                 {`{}`, `{"a":1}`, `{"b":1}`, `{"a":1,"b":1}`},
		"other members of a new object": {`{}`, `{"m":{"a":1}}`, `{"m":{"b":1}}`, `{"m":{"a":1,"b":1}}`},
		"both remove":                   {`{"a":1,"b":1}`, `{"b":1}`, `{"b":1}`, `{"b":1}`},
		"one removes":                   {`{"a":1,"b":1}`, `{"b":1}`, `{"a":1,"b":2}`, `{"b":2}`},
		"the same change":               {`{"a":1}`, `{"a":2}`, `{"a":2}`, `{"a":2}`},
		"another change":                {`{"a":1}`, `{"a":2}`, `{"a":3}`, "a"},
		"one removes what one changes":  {`{"a":{"b":1}}`, `{"a":{"b":2}}`, `{}`, "a"},
		"an array is one field":         {`{"spec":{"c":[1]}}`, `{"spec":{"c":[1,2]}}`, `{"spec":{"c":[1,3]}}`, "spec.c"},
		"the same array":                {`{"c":[1]}`, `{"c":[1,2]}`, `{"c":[ 1, 2]}`, `{"c":[1,2]}`},
		"a name with dots":              {`{"metadata":{}}`, `{"metadata":{"a.io/x":"1"}}`, `{"metadata":{"a.io/x":"2"}}`, "metadata[a.io/x]"},
		"an object for a value":         {`{"a":1}`, `{"a":{"x":1}}`, `{"a":{"y":1}}`, "a"},
		"large numbers":                 {`{"a":9007199254740993}`, `{"a":9007199254740993,"b":1}`, `{"a":9007199254740995}`, `{"a":9007199254740995,"b":1}`},
		"null is a value":               {`{"a":1}`, `{"a":null}`, `{"a":1,"b":null}`, `{"a":null,"b":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, changed, err := conversion.Merge([]byte(tt.base), []byte(tt.ours), []byte(tt.theirs))
			var conflict *conversion.ConflictError
			if errors.As(err, &conflict) {
				got = []byte(conflict.Field)
			} else if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if conflict == nil && changed == (string(got) == tt.ours) {
				t.Errorf("changed %t: %s of %s", changed, got, tt.ours)
			}
		})
	}
	for _, bad := range []string{"", "1", "[]", `{"a":`} {
		for i := range 3 {
			docs := []string{`{}`, `{}`, `{}`}
			docs[i] = bad
			if _, _, err := conversion.Merge([]byte(docs[0]), []byte(docs[1]), []byte(docs[2])); err == nil {
				t.Errorf("%q is merged", docs)
			}
		}
	}
}

// TestMergeByAnotherWay compares with documents whose leaves are known: a merge has each leaf of the side that changed it, and conflicts where both
// sides have changed a leaf to different values. It does not matter which of the two is ours.
func TestMergeByAnotherWay(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	merged, conflicts := 0, 0
	for range 5000 {
		base := map[string]string{}
		for range r.IntN(8) {
			base[leaf(r)] = "0"
		}
		ours, theirs := edited(r, base), edited(r, base)
		want, clash := map[string]string{}, false
		for path := range maps.Keys(union(base, ours, theirs)) {
			was, inBase := base[path]
			a, inOurs := ours[path]
			b, inTheirs := theirs[path]
			weChanged, theyChanged := inBase != inOurs || was != a, inBase != inTheirs || was != b
			value, there := a, inOurs
			if theyChanged {
				value, there = b, inTheirs
			}
			clash = clash || weChanged && theyChanged && (inOurs != inTheirs || a != b)
			if there {
				want[path] = value
			}
		}
		got, _, err := conversion.Merge(document(base), document(ours), document(theirs))
		back, _, errBack := conversion.Merge(document(base), document(theirs), document(ours))
		if clash {
			conflicts++
			var conflict *conversion.ConflictError
			if !errors.As(err, &conflict) || !errors.As(errBack, &conflict) {
				t.Fatalf("%v, %v of %v: %s, %v, want a conflict", ours, theirs, base, got, err)
			}
			continue
		}
		merged++
		if err != nil || !reflect.DeepEqual(parsed(t, got), parsed(t, document(want))) || !reflect.DeepEqual(parsed(t, got), parsed(t, back)) {
			t.Fatalf("%v, %v of %v: %s and %s, %v, want %s", ours, theirs, base, got, back, err, document(want))
		}
	}
	if merged < 1000 || conflicts < 500 {
		t.Errorf("%d merged and %d conflicts: the test does not see enough", merged, conflicts)
	}
}

// leaf is a path of a document whose objects are fixed, so that no leaf is an object in another document.
func leaf(r *rand.Rand) string { return fmt.Sprintf("o%d.o%d.l%d", r.IntN(2), r.IntN(2), r.IntN(3)) }

func edited(r *rand.Rand, base map[string]string) map[string]string {
	out := maps.Clone(base)
	for range r.IntN(8) {
		if path := leaf(r); r.IntN(3) == 0 {
			delete(out, path)
		} else {
			out[path] = fmt.Sprint(r.IntN(6))
		}
	}
	return out
}

func union(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}

// document has every object, with leaves or without.
func document(leaves map[string]string) []byte {
	out := map[string]map[string]map[string]string{}
	for _, a := range []string{"o0", "o1"} {
		out[a] = map[string]map[string]string{"o0": {}, "o1": {}}
	}
	for _, path := range slices.Sorted(maps.Keys(leaves)) {
		names := strings.Split(path, ".")
		out[names[0]][names[1]][names[2]] = leaves[path]
	}
	raw, err := json.Marshal(out)
	if err != nil {
		panic(err)
	}
	return raw
}

func parsed(t *testing.T, raw []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}
