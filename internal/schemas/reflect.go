package schemas

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// schema is a structural schema.
type schema = apiextensionsv1.JSONSchemaProps

// reader makes schemas of Go types.
type reader struct {
	comments comments
	// rules complete the schemas of the types, by path: "spec.hosts", and below a list "spec.capabilities[].name".
	rules map[string]rule
	used  map[string]bool
	// strange are the fields of types that documents do not have.
	strange []string
}

// rule completes the schema of a field.
type rule func(*schema)

// object is the schema of a struct at a path.
func (r *reader) object(t reflect.Type, path string) schema {
	s := schema{Type: "object", Properties: map[string]schema{}}
	for f := range t.Fields() {
		name := jsonName(f)
		if f.Type == reflect.TypeFor[json.RawMessage]() { // the decoder reads it to refuse it
			continue
		}
		if name == "" { // inline
			inlined := r.object(f.Type, path)
			maps.Copy(s.Properties, inlined.Properties)
			s.Required = append(s.Required, inlined.Required...)
			continue
		}
		at := strings.TrimPrefix(path+"."+name, ".")
		property := r.value(f.Type, at)
		property.Description = r.comments.describe(t, f)
		s.Properties[name] = property
		if !strings.Contains(f.Tag.Get("json"), "omitempty") {
			s.Required = append(s.Required, name)
		}
	}
	if len(s.Properties) == 0 {
		s.Properties = nil
	}
	slices.Sort(s.Required)
	return s
}

// value is the schema of any type at a path, with the rule of the path.
func (r *reader) value(t reflect.Type, path string) schema {
	s := r.plain(t, path)
	if complete, ok := r.rules[path]; ok {
		complete(&s)
		r.used[path] = true
	}
	return s
}

func (r *reader) plain(t reflect.Type, path string) schema {
	if path == "metadata" {
		return schema{Type: "object"} // the API server's own
	}
	switch t.Kind() {
	case reflect.Pointer:
		return r.plain(t.Elem(), path)
	case reflect.String:
		return schema{Type: "string"}
	case reflect.Bool:
		return schema{Type: "boolean"}
	case reflect.Int32, reflect.Int64:
		return schema{Type: "integer", Format: t.Kind().String()}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return schema{Type: "string", Format: "byte"}
		}
		item := r.value(t.Elem(), path+"[]")
		return schema{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &item}, XListType: ptr.To("atomic")}
	case reflect.Map:
		item := r.value(t.Elem(), path+"{}")
		return schema{Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &item}}
	case reflect.Interface:
		return schema{XPreserveUnknownFields: ptr.To(true)}
	case reflect.Struct:
		switch t {
		case reflect.TypeFor[metav1.Time]():
			return schema{Type: "string", Format: "date-time"}
		case reflect.TypeFor[apiextensionsv1.CustomResourceDefinition]():
			return definition()
		}
		return r.object(t, path)
	default:
		r.strange = append(r.strange, path+" is a "+t.String())
		return schema{}
	}
}

// unused are the paths of rules that no field has.
func (r *reader) unused() (paths []string) {
	for path := range r.rules {
		if !r.used[path] {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// definition is the schema of a CustomResourceDefinition in a document, of which little is read.
func definition() schema {
	return schema{
		Type: "object", XEmbeddedResource: true, XPreserveUnknownFields: ptr.To(true),
		Properties: map[string]schema{
			"apiVersion": {Type: "string", Enum: words("apiextensions.k8s.io/v1")},
			"kind":       {Type: "string", Enum: words("CustomResourceDefinition")},
			"metadata":   {Type: "object"},
		},
		Required: []string{"apiVersion", "kind", "metadata"},
	}
}
