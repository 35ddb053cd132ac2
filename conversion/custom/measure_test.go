package custom

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// bombs is a definition of bombs, with a schema for spec in JSON.
func bombs(t testing.TB, spec string) *Definition {
	t.Helper()
	var props apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal([]byte(`{"type":"object","properties":{"spec":`+spec+`}}`), &props); err != nil {
		t.Fatal(err)
	}
	d, err := Compile(&apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "bombs.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "bombs", Kind: "Bomb"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &props},
			}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// bomb is an object with a spec.
func bomb(spec string) []byte {
	return []byte(`{"apiVersion":"example.com/v1","kind":"Bomb","metadata":{"name":"b"},"spec":` + spec + `}`)
}

func list(n int, item string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
}

func TestDefaultsAreBoundedBeforeTheyAreFilledIn(t *testing.T) {
	citest.Sequential(t)
	text := func(bytes int) string { return `"` + strings.Repeat("x", bytes) + `"` }
	named := func(n int) string {
		var o strings.Builder
		for i := range n {
			fmt.Fprintf(&o, `,"%d":{}`, i)
		}
		return "{" + o.String()[1:] + "}"
	}
	one := `{"type":"object","properties":{"d":{"type":"string","default":` + text(100_000) + `}}}`
	nest := `{"type":"object","properties":{"d":{"type":"integer","default":1}}}`
	for range 6 { // each level has ten items, in each of which a level lies
		nest = `{"type":"object","properties":{"a":{"type":"array","default":` + list(10, "{}") + `,"items":` + nest + `}}}`
	}
	wide := &strings.Builder{}
	for i := range 2000 {
		fmt.Fprintf(wide, `,"p%d":{"type":"object","properties":{"d":{"type":"integer","default":1}}}`, i)
	}
	per := sizeOf("") + 1 // of a default of one byte of name, beside its text
	for name, test := range map[string]struct{ schema, spec, want string }{
		"a default for each key of a map": {`{"type":"object","additionalProperties":` + one + `}`, named(5000), "more than 8388608 bytes"},
		"a default for each item":         {`{"type":"array","items":` + one + `}`, list(5000, "{}"), "more than 8388608 bytes"},
		"a default for each null":         {`{"type":"array","items":{"type":"string","default":` + text(100_000) + `}}`, list(5000, "null"), "more than 8388608 bytes"},
		"defaults in defaults":            {nest, "{}", "more than 8388608 bytes"},
		"properties for each item":        {`{"type":"array","items":{"type":"object","properties":{` + wide.String()[1:] + `}}}`, list(5000, "{}"), "looks at the schema"},
		"as many bytes as there may be":   {`{"type":"object","properties":{"d":{"type":"string","default":` + text(MaxDefaultBytes-int(per)) + `}}}`, "{}", ""},
		"one byte more":                   {`{"type":"object","properties":{"d":{"type":"string","default":` + text(MaxDefaultBytes-int(per)+1) + `}}}`, "{}", "more than 8388608 bytes"},
		"many small ones":                 {`{"type":"array","items":` + strings.Replace(one, text(100_000), `"x"`, 1) + `}`, list(5000, "{}"), ""},
	} {
		booked := int64(0)
		got, err := bombs(t, test.schema).Default(t.Context(), bomb(test.spec), func(bytes int64) error { booked += bytes; return nil })
		if test.want == "" && (err != nil || booked < int64(len(got)-len(test.spec)) || booked > carryFactor*MaxDefaultBytes) {
			t.Errorf("%s: %d bytes, %d booked, %v", name, len(got), booked, err)
		}
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "bombs.example.com") || booked != 0) {
			t.Errorf("%s: %d bytes, %d booked, %v; want %q", name, len(got), booked, err, test.want)
		}
	}
}

func TestDefaultsThatFindNoMemoryAreNotFilledIn(t *testing.T) {
	d := bombs(t, `{"type":"object","properties":{"d":{"type":"string","default":"x"}}}`)
	full := errors.New("full")
	if got, err := d.Default(t.Context(), bomb("{}"), func(int64) error { return full }); !errors.Is(err, full) || got != nil {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := d.Default(t.Context(), bomb(`{"d":"y"}`), func(int64) error { return full }); err != nil || string(got) != string(bomb(`{"d":"y"}`)) {
		t.Errorf("an object that has all: %s, %v", got, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	items := `{"type":"array","items":{"type":"object","properties":{"d":{"type":"object","properties":{"e":{"type":"string","default":"x"}}}}}}`
	if _, err := bombs(t, items).Default(ended, bomb(list(100_000, "{}")), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a review that has ended: %v", err)
	}
}
