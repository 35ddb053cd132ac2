package kube

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// changesFile has the changes that every SDK plays.
const changesFile = "../../sdk/conformance/changes.json"

// TestChanges plays the vectors of docs/protocol.md, "Changes".
func TestChanges(t *testing.T) {
	text, err := os.ReadFile(changesFile)
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name   string `json:"name"`
		Why    string `json:"why"`
		Raw    string `json:"raw"`
		Before string `json:"before"`
		After  string `json:"after"`
		Object string `json:"object"`
		Patch  string `json:"patch"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			before := cmp.Or(c.Before, c.Raw)
			merged := merge(reading(t, c.Raw), reading(t, before), reading(t, c.After), 0)
			if diff := gocmp.Diff(untyped(t, c.Object), untyped(t, textOf(t, merged))); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			patch, err := change([]byte(c.Raw), []byte(before), []byte(c.After))
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(untyped(t, c.Patch), untyped(t, cmp.Or(string(patch), "[]"))); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if diff := gocmp.Diff(untyped(t, c.Object), untyped(t, patched(t, c.Raw, []byte(c.Patch)))); diff != "" {
				t.Errorf("patched object (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAPatchIsBounded: many small changes cost no more bytes than the object, however deep they are.
func TestAPatchIsBounded(t *testing.T) {
	deep := func(leaf string) string {
		return strings.Repeat(`{"a-long-name-of-a-member":`, 200) + leaf + strings.Repeat("}", 200)
	}
	items := func(format string, reversed ...bool) string {
		list := make([]string, 20_000)
		for i := range list {
			list[i] = fmt.Sprintf(format, i)
		}
		if reversed != nil {
			slices.Reverse(list)
		}
		return `{"a-long-name-of-a-member":{"another-long-name-of-a-member":[` + strings.Join(list, ",") + `]}}`
	}
	for name, c := range map[string][2]string{
		"each item":     {items(`{"n":%d}`), items(`{"n":%d,"m":1}`)},
		"all removed":   {items(`"%d"`), `{"a-long-name-of-a-member":{"another-long-name-of-a-member":["x"]}}`},
		"reversed":      {items(`{"name":"%d"}`), items(`{"name":"%d"}`, true)},
		"below a depth": {deep("1"), deep("2")},
	} {
		t.Run(name, func(t *testing.T) {
			patch, err := change([]byte(c[0]), []byte(c[0]), []byte(c[1]))
			if err != nil {
				t.Fatal(err)
			}
			if most := max(smallPatch, len(c[1])+100); len(patch) > most {
				t.Errorf("the patch has %d bytes, want at most %d", len(patch), most)
			}
			if !equal(reading(t, patched(t, c[0], patch)), reading(t, c[1])) {
				t.Error("the patch makes another object")
			}
		})
	}
}

// BenchmarkChange changes an object of 2.9 MiB.
func BenchmarkChange(b *testing.B) {
	list := make([]string, 30_000)
	for i := range list {
		list[i] = fmt.Sprintf(`{"name":"item-%d","image":"registry.example.com/team/image:%d","ports":[{"containerPort":80}]}`, i, i)
	}
	object := func(labels string, items ...string) []byte {
		return []byte(`{"metadata":{"labels":{` + labels + `}},"spec":{"items":[` + strings.Join(items, ",") + `]}}`)
	}
	raw := object("", list...)
	for name, after := range map[string][]byte{
		"label":      object(`"team":"shop"`, list...),
		"item first": object("", append([]string{`{"name":"new"}`}, list...)...),
		"each item":  bytes.ReplaceAll(raw, []byte(`registry.example.com`), []byte(`mirror.example.com`)),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := change(raw, raw, after); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func reading(t *testing.T, text string) *document {
	t.Helper()
	d, err := read([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return d
}

// untyped is decoded by encoding/json, with numbers in their spelling.
func untyped(t *testing.T, text string) any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

func textOf(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// patched applies a patch as the dispatcher and the API server do.
func patched(t *testing.T, object string, patch []byte) string {
	t.Helper()
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	changed, err := operations.Apply([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	return string(changed)
}

// FuzzDocument: a document that is split has the same values as encoding/json.
func FuzzDocument(f *testing.F) {
	for _, text := range []string{
		" { \"a\" : [ 1 , 2.50 , -1e9 , true , false , null , \"x\" ] }\n", `[]`, `{}`, `"a"`, "7 ", `null`, `[[],{},[{}],{"a":[]}]`,
		`{"a":1,"a":{"b":2}}`, `{"\u0061\"\\/":"\ud83d\ude00\ud800","}":"]","{":"["}`, "{\"\xff\xff\":\"\xfe\xfe\"}", `[{"a":"\\"},"\\\"",3]`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := read([]byte(text))
		if valid := json.Valid([]byte(text)); (err == nil) != valid {
			t.Fatalf("read: %v, JSON: %t", err, valid)
		}
		if err == nil {
			if diff := gocmp.Diff(untyped(t, text), valueOf(t, d)); diff != "" {
				t.Errorf("encoding/json (-) and document (+):\n%s", diff)
			}
		}
	})
}

// valueOf splits a document to its leaves.
func valueOf(t *testing.T, d *document) any {
	t.Helper()
	switch {
	case d.isObject():
		members := map[string]any{}
		for name, member := range d.object() {
			members[name] = valueOf(t, member)
		}
		return members
	case d.isList():
		items := []any{}
		for _, item := range d.list() {
			items = append(items, valueOf(t, item))
		}
		return items
	default:
		return untyped(t, string(d.text))
	}
}
