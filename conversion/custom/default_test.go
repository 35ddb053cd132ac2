package custom

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"sigs.k8s.io/yaml"
)

// withSchema gives the first version of a CustomResourceDefinition a schema.
func withSchema(crd *apiextensionsv1.CustomResourceDefinition, s *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.CustomResourceDefinition {
	crd.Spec.Versions[0].Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: s}
	return crd
}

// readSchema reads a schema from YAML.
func readSchema(t testing.TB, text string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	s := &apiextensionsv1.JSONSchemaProps{}
	if err := yaml.UnmarshalStrict([]byte(text), s); err != nil {
		t.Fatal(err)
	}
	return s
}

const sized = `
type: object
properties:
  spec:
    type: object
    default: {}
    properties:
      size: {type: integer, default: 3}
      ratio: {type: number, default: 1.0}
      color: {type: string, nullable: true, default: red}
      shape: {type: string, default: round}
      parts:
        type: array
        items:
          type: object
          properties:
            name: {type: string}
            weight: {type: number, default: 0.5}
      extra:
        type: object
        additionalProperties:
          type: object
          default: {lit: true, unknown: 1}
          properties:
            lit: {type: boolean, default: false}
`

func TestDefaultsAreFilledInAndNothingElseIsTouched(t *testing.T) {
	d := compiled(t, withSchema(definition("v1", "v2"), readSchema(t, sized)))
	for name, c := range map[string][2]string{
		"nothing there":            {`{"apiVersion":"example.com/v1","kind":"Widget"}`, `{"apiVersion":"example.com/v1","kind":"Widget","spec":{"color":"red","ratio":1,"shape":"round","size":3}}`},
		"all there, as it stands":  {`{ "apiVersion":"example.com/v1","kind":"Widget","spec":{"size":1e0,"ratio":0.50,"color":null,"shape":"\u0078"}}`, `{ "apiVersion":"example.com/v1","kind":"Widget","spec":{"size":1e0,"ratio":0.50,"color":null,"shape":"\u0078"}}`},
		"null where it may not be": {`{"apiVersion":"example.com/v1","kind":"Widget","spec":{"size":1,"ratio":1,"color":"x","shape":null}}`, `{"apiVersion":"example.com/v1","kind":"Widget","spec":{"color":"x","ratio":1,"shape":"round","size":1}}`},
		"items, and numbers that keep their spelling": {
			`{"apiVersion":"example.com/v1","kind":"Widget","spec":{"color":"x","ratio":1.0,"shape":"y","size":9007199254740993,"parts":[{"weight":1.50},{"name":"n"}],"unknown":1.0}}`,
			`{"apiVersion":"example.com/v1","kind":"Widget","spec":{"color":"x","parts":[{"weight":1.50},{"name":"n","weight":0.5}],"ratio":1.0,"shape":"y","size":9007199254740993,"unknown":1.0}}`,
		},
		"additional members": {
			`{"apiVersion":"example.com/v1","kind":"Widget","spec":{"color":"x","ratio":1,"shape":"y","size":1,"extra":{"a":null,"b":{}}}}`,
			`{"apiVersion":"example.com/v1","kind":"Widget","spec":{"color":"x","extra":{"a":{"lit":true},"b":{"lit":false}},"ratio":1,"shape":"y","size":1}}`,
		},
		"a version without schema": {`{"apiVersion":"example.com/v2","kind":"Widget"}`, `{"apiVersion":"example.com/v2","kind":"Widget"}`},
		"an unknown version":       {`{"apiVersion":"example.com/v3","kind":"Widget"}`, `{"apiVersion":"example.com/v3","kind":"Widget"}`},
		"another kind":             {`{"apiVersion":"autoscaling/v1","kind":"Scale"}`, `{"apiVersion":"autoscaling/v1","kind":"Scale"}`},
		"another group":            {`{"apiVersion":"example.org/v1","kind":"Widget"}`, `{"apiVersion":"example.org/v1","kind":"Widget"}`},
		"a spec that is no object": {`{"apiVersion":"example.com/v1","kind":"Widget","spec":[1.0]}`, `{"apiVersion":"example.com/v1","kind":"Widget","spec":[1.0]}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := d.Default(t.Context(), []byte(c[0]), nil)
			if err != nil || string(got) != c[1] {
				t.Errorf("%v\ngot  %s\nwant %s", err, got, c[1])
			}
		})
	}
	if _, err := d.Default(t.Context(), []byte(`[]`), nil); err == nil || !strings.Contains(err.Error(), "widgets.example.com") {
		t.Errorf("an array: %v", err)
	}
}

func TestWithoutDefaultsNothingIsRead(t *testing.T) {
	d := compiled(t, withSchema(definition("v1"), readSchema(t, `{type: object, properties: {spec: {type: object}}}`)))
	if got, err := d.Default(t.Context(), []byte(`no JSON`), nil); err != nil || string(got) != `no JSON` {
		t.Errorf("%s, %v", got, err)
	}
}

func TestASchemaThatIsNotStructuralIsRefusedUnlessFieldsArePreserved(t *testing.T) {
	crd := withSchema(definition("v1"), readSchema(t, `{type: object, properties: {spec: {type: object, default: {}, patternProperties: {a: {type: string}}}}}`))
	if _, err := Compile(crd); err == nil || !strings.Contains(err.Error(), "the schema of version v1") {
		t.Errorf("%v", err)
	}
	crd.Spec.PreserveUnknownFields = true
	if _, err := Compile(crd); err != nil {
		t.Error(err)
	}
}

// wholeSchema is the schema of a version as crdHandler.getOrCreateServingInfoFor makes it (customresource_handler.go).
func wholeSchema(t testing.TB, v *apiextensionsv1.CustomResourceDefinitionVersion) *schema.Structural {
	t.Helper()
	internal := &apiextensions.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(v.Schema.DeepCopy(), internal, nil); err != nil {
		t.Fatal(err)
	}
	s, err := schema.NewStructural(internal.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	s = s.DeepCopy()
	if err := defaulting.PruneDefaults(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// schemaOf makes a schema, and values that may be of it.
type schemaOf struct{ generator }

// name is a property, out of few, so that values meet schemas.
func (g schemaOf) name() string { return []string{"a", "b", "c", "d"}[g.IntN(4)] }

func (g schemaOf) schema(depth int) *apiextensionsv1.JSONSchemaProps {
	s := &apiextensionsv1.JSONSchemaProps{Type: []string{"object", "array", "string", "integer"}[g.IntN(4)], Nullable: g.IntN(3) == 0}
	if depth == 0 && s.Type != "string" {
		s.Type = "integer"
	}
	switch {
	case s.Type == "array":
		s.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: g.schema(depth - 1)}
	case s.Type == "object" && g.IntN(3) == 0:
		s.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: g.schema(depth - 1)}
	case s.Type == "object":
		s.Properties = map[string]apiextensionsv1.JSONSchemaProps{}
		for range g.IntN(4) {
			s.Properties[g.name()] = *g.schema(depth - 1)
		}
	}
	if g.IntN(3) == 0 {
		preserve := true
		if s.Type == "object" && g.IntN(4) == 0 {
			s.XPreserveUnknownFields = &preserve
		}
		s.Default = &apiextensionsv1.JSON{Raw: g.raw(g.of(s))}
	}
	return s
}

// raw is a value as JSON.
func (schemaOf) raw(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		return []byte("null")
	}
	return raw
}

// of is a value of a schema, mostly.
func (g schemaOf) of(s *apiextensionsv1.JSONSchemaProps) any {
	switch {
	case g.IntN(10) == 0:
		return nil
	case g.rarely():
		return g.value(1)
	case s.Type == "string":
		return g.text()
	case s.Type == "integer":
		return g.IntN(10)
	case s.Type == "array":
		return []any{g.of(s.Items.Schema), g.of(s.Items.Schema)}[:g.IntN(3)]
	}
	out := map[string]any{}
	for range g.IntN(4) {
		name := g.name()
		if property, ok := s.Properties[name]; ok {
			out[name] = g.of(&property)
		} else if s.AdditionalProperties != nil {
			out[name] = g.of(s.AdditionalProperties.Schema)
		} else if g.rarely() {
			out[name] = g.value(1)
		}
	}
	return out
}

func TestRandomDefaultsAreThoseOfTheOriginal(t *testing.T) {
	g := schemaOf{generator{rand.New(rand.NewPCG(5, 6))}}
	filled := 0
	for range 1500 {
		spec := g.schema(4)
		s := &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": *spec}}
		crd := withSchema(definition("v1"), s)
		d, whole := compiled(t, crd), wholeSchema(t, &crd.Spec.Versions[0])
		for range 5 {
			object := map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"}}
			if !g.rarely() {
				object["spec"] = g.of(spec)
			}
			raw := quoted(t, object)
			want := tree(t, []byte(raw))
			defaulting.Default(want, whole)
			got, err := d.Default(t.Context(), []byte(raw), nil)
			if err != nil || !reflect.DeepEqual(tree(t, got), want) {
				t.Fatalf("%v\nobject %s\nschema %s\ngot    %s\nwant   %s", err, raw, quoted(t, s), got, quoted(t, want))
			}
			if string(got) != raw {
				filled++
			}
		}
	}
	if filled < 500 {
		t.Errorf("only %d objects had something to be filled in", filled)
	}
}

func TestALargeDefinitionKeepsLittle(t *testing.T) {
	file := filepath.Join("..", "..", "..", "shared", "corpus", "objects", "alertmanagers-crd-large.apiextensions-v1.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Skip("the corpus is not here")
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, crd); err != nil {
		t.Fatal(err)
	}
	d := compiled(t, crd)
	raw := []byte(`{"apiVersion":"monitoring.coreos.com/v1","kind":"Alertmanager","metadata":{"name":"a"},"spec":{"containers":[{"ports":[{"containerPort":1}]}]}}`)
	want := tree(t, raw)
	defaulting.Default(want, wholeSchema(t, &crd.Spec.Versions[0]))
	got, err := d.Default(t.Context(), raw, nil)
	if err != nil || !reflect.DeepEqual(tree(t, got), want) {
		t.Errorf("%v\ngot  %s\nwant %s", err, got, quoted(t, want))
	}
	if !strings.Contains(string(got), `"protocol":"TCP"`) {
		t.Errorf("nothing was filled in: %s", got)
	}
}

func BenchmarkCompile(b *testing.B) {
	file := filepath.Join("..", "..", "..", "shared", "corpus", "objects", "alertmanagers-crd-large.apiextensions-v1.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		b.Skip("the corpus is not here")
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, crd); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(crd); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDefault(b *testing.B) {
	d := compiled(b, withSchema(definition("v1"), readSchema(b, sized)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Default(b.Context(), []byte(before), nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkConvertNone(b *testing.B) {
	d := compiled(b, definition("v1", "v2"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Convert(b.Context(), []byte(before), widget("v2"), nobody(b)); err != nil {
			b.Fatal(err)
		}
	}
}
