package conversion

import (
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"
)

// FuzzATextIsFoundWhereADecoderFindsIt compares with sigs.k8s.io/json.
func FuzzATextIsFoundWhereADecoderFindsIt(f *testing.F) {
	for _, document := range []string{
		`{"metadata":{"name":"a","annotations":{"b":"c"}},"spec":{}}`, `{"spec":[{"metadata":{"name":"b"}}],"metadata":{"name":"a"}}`,
		`{"\u006detadata":{"na\u006de":"a\n"}}`, `{"Metadata":{"name":"a"}}`, `{"metadata":null}`, `{"metadata":[]}`, `{"metadata":{"name":1}}`,
		`{"metadata":{"name":null}}`, `{}`, `null`, `[]`, `"a"`, ``, ` `, `{`, `{"metadata":{"name":"a"}`, `{"metadata":{}}x`, `{"metadata":{}} `, `nul`,
		`{"spec":01}`, "{\"metadata\":{\"name\":\"\xff\"}}", `{"spec":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}`,
	} {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		var whole struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		wholeErr := kjson.UnmarshalCaseSensitivePreserveInts(document, &whole)
		text, err := LookupText(document, "metadata", "name")
		if fields, err := kjson.UnmarshalStrict(document, &map[string]any{}); err == nil && len(fields) > 0 {
			return // of duplicate fields the last counts alone
		}
		if (wholeErr == nil) != (err == nil) || err == nil && text != whole.Metadata.Name {
			t.Fatalf("%q: %q, %v; want %q, %v", document, text, err, whole.Metadata.Name, wholeErr)
		}
	})
}

func BenchmarkATextInALargeObject(b *testing.B) {
	document := []byte(`{"metadata":{"name":"a","annotations":{"a":"` + strings.Repeat("a", 1<<20) + `"}}}`)
	b.Run("decoded", func(b *testing.B) {
		for b.Loop() {
			var whole struct {
				Metadata struct {
					Name string `json:"name"`
				} `json:"metadata"`
			}
			if err := kjson.UnmarshalCaseSensitivePreserveInts(document, &whole); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("looked up", func(b *testing.B) {
		for b.Loop() {
			if _, err := LookupText(document, "metadata", "name"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
