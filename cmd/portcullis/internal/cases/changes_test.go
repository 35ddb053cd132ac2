package cases

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestChangesOfAnObject(t *testing.T) {
	const object = `{"a":{"b":[1,2,3]},"c.d":"e"}`
	for name, of := range map[string]struct{ changes, want string }{
		"a field is set":                     {`{"a.f": 1}`, `{"a":{"b":[1,2,3],"f":1},"c.d":"e"}`},
		"a field is made with its parents":   {`{"x.y.z": null, "x.y.w": 1, "x.y.z ": 2}`, "error: no such field"},
		"fields that are not there are made": {`{"x.y[0].z": true}`, `{"a":{"b":[1,2,3]},"c.d":"e","x":{"y":[{"z":true}]}}`},
		"a field is removed":                 {`{"a.b": null}`, `{"a":{},"c.d":"e"}`},
		"a name has dots":                    {`{"[\"c.d\"]": "f"}`, `{"a":{"b":[1,2,3]},"c.d":"f"}`},
		"a name in brackets needs no quotes": {`{"[c.d]": "f"}`, `{"a":{"b":[1,2,3]},"c.d":"f"}`},
		"a name in quotes may have brackets": {`{"a[\"x]\"]": 1}`, `{"a":{"b":[1,2,3],"x]":1},"c.d":"e"}`},
		"items are appended in their order":  {`{"a.b[4]": 5, "a.b[3]": 4}`, `{"a":{"b":[1,2,3,4,5]},"c.d":"e"}`},
		"an item after the end is none":      {`{"a.b[4]": 5}`, "error: the list has 3 items"},
		"the last of the items goes first":   {`{"a.b[0]": null, "a.b[1]": null}`, `{"a":{"b":[3]},"c.d":"e"}`},
		"an item that is not there":          {`{"a.b[3]": null}`, "error: the list has 3 items"},
		"a parent comes before its field":    {`{"a.b[0].x": 1, "a.b[0]": {}}`, `{"a":{"b":[{"x":1},2,3]},"c.d":"e"}`},
		"a text has no fields":               {`{"[\"c.d\"].x": 1}`, "error: x: it stands in no mapping"},
		"a mapping has no items":             {`{"a[0]": 1}`, "error: it stands in no list"},
		"a path that is empty":               {`{"": 1}`, "error: it names no field"},
		"a bracket that is open":             {`{"a[0": 1}`, "error: ] is missing"},
		"a path that is too long":            {`{"` + strings.Repeat("a.", 64) + `b": 1}`, "error: at most 64 steps"},
		"a list in the place of changes":     {`[1]`, "error: must be a mapping"},
		"nothing":                            {`{}`, object},
	} {
		t.Run(name, func(t *testing.T) {
			var c changes
			var fields map[string]any
			if err := json.Unmarshal([]byte(object), &fields); err != nil {
				t.Fatal(err)
			}
			err := json.Unmarshal([]byte(of.changes), &c)
			var changed map[string]any
			if err == nil {
				changed, err = c.apply(fields)
			}
			got, _ := json.Marshal(changed)
			if want, fails := strings.CutPrefix(of.want, "error: "); fails {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s, %v, want %q", got, err, want)
				}
			} else if err != nil || string(got) != of.want {
				t.Errorf("%s, %v, want %s", got, err, of.want)
			}
			if before, _ := json.Marshal(fields); string(before) != object {
				t.Errorf("the object has become %s", before)
			}
		})
	}
}
