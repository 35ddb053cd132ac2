package typecheck

import (
	"reflect"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Schemas are the kinds whose fields are known. They may be used concurrently, and never change.
type Schemas interface {
	// KindOf returns the kind of the objects of a resource; false if it is not known.
	KindOf(resource schema.GroupVersionResource) (schema.GroupVersionKind, bool)
	// SchemaOf returns the schema of a kind, with metadata; nil if it is not known. It must not be changed. Before the schema of a custom resource is
	// made, book is called with the length of its text, in bytes; an error of book is returned, and no other.
	SchemaOf(kind schema.GroupVersionKind, book func(bytes int) error) (*spec.Schema, error)
}

// Builtin are the kinds of Kubernetes. Their schemas are read from the Go types that are linked anyway: the OpenAPI definitions that kube-apiserver
// publishes would add megabytes to the program, most of which are descriptions.
type Builtin struct{}

var _ Schemas = Builtin{}

// schemes are the schemes of the Go types.
//
//nolint:gochecknoglobals // made once
var schemes = sync.OnceValue(func() []*runtime.Scheme {
	extensions := runtime.NewScheme()
	_ = apiextensionsv1.AddToScheme(extensions) // it cannot fail
	return []*runtime.Scheme{scheme.Scheme, extensions}
})

// kindsOf are the kinds of the schemes, by resource.
//
//nolint:gochecknoglobals // made once
var kindsOf = sync.OnceValue(func() map[schema.GroupVersionResource]schema.GroupVersionKind {
	all := map[schema.GroupVersionResource]schema.GroupVersionKind{}
	for _, s := range schemes() {
		for kind, t := range s.AllKnownTypes() {
			if _, isObject := reflect.PointerTo(t).MethodByName("GetObjectMeta"); isObject && kind.Version != runtime.APIVersionInternal {
				resource, _ := meta.UnsafeGuessKindToResource(kind)
				all[resource] = kind
			}
		}
	}
	return all
})

// KindOf implements [Schemas].
func (Builtin) KindOf(resource schema.GroupVersionResource) (schema.GroupVersionKind, bool) {
	kind, ok := kindsOf()[resource]
	return kind, ok
}

// SchemaOf implements [Schemas].
func (Builtin) SchemaOf(kind schema.GroupVersionKind, _ func(bytes int) error) (*spec.Schema, error) {
	for _, s := range schemes() {
		if t, ok := s.AllKnownTypes()[kind]; ok {
			of := typeReader{}.schema(t)
			return &of, nil
		}
	}
	return nil, nil //nolint:nilnil // as documented
}

// typeReader reads schemas of Go types as openapi-gen does. It holds the structs around a type, in which the type is not read again.
type typeReader map[reflect.Type]bool

// schema is the schema of a type by its kind, or by the methods that openapi-gen calls.
func (r typeReader) schema(t reflect.Type) spec.Schema {
	if t.Kind() == reflect.Pointer {
		return r.schema(t.Elem())
	}
	switch of := reflect.Zero(t).Interface().(type) {
	case interface{ OpenAPIV3OneOfTypes() []string }: // a Quantity, or an IntOrString
		return anything()
	case interface{ OpenAPISchemaType() []string }:
		if types := of.OpenAPISchemaType(); len(types) == 1 {
			return simple(types[0])
		}
		return anything()
	}
	switch t.Kind() {
	case reflect.String:
		return simple("string")
	case reflect.Bool:
		return simple("boolean")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return simple("integer")
	case reflect.Float32, reflect.Float64:
		return simple("number")
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 { // base64
			return simple("string")
		}
		items := r.schema(t.Elem())
		return *spec.ArrayProperty(&items)
	case reflect.Map:
		values := r.schema(t.Elem())
		return *spec.MapProperty(&values)
	case reflect.Struct:
		return r.object(t)
	default:
		return anything()
	}
}

// object is the schema of a struct. A struct in a struct of the same type may have any fields.
func (r typeReader) object(t reflect.Type) spec.Schema {
	if r[t] {
		return anything()
	}
	r[t] = true
	defer delete(r, t)
	of := simple("object")
	r.addFields(t, &of)
	return of
}

func (r typeReader) addFields(t reflect.Type, to *spec.Schema) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-", !f.IsExported():
		case name == "" && (f.Anonymous || strings.Contains(options, "inline")):
			r.addFields(f.Type, to)
		default:
			to.SetProperty(name, r.schema(f.Type))
		}
	}
}

func simple(name string) spec.Schema {
	return spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{name}}}
}

// anything is the schema of a value of any type.
func anything() (s spec.Schema) {
	s.AddExtension(extIntOrString, true)
	return s
}

const (
	extIntOrString           = "x-kubernetes-int-or-string" // to CEL it is a value of any type
	extPreserveUnknownFields = "x-kubernetes-preserve-unknown-fields"
)

// evaluated returns a schema as expressions of policies see objects. They read JSON: a time and a duration are texts, and bytes are base64, though
// Kubernetes' type checker has other types for them. A value whose fields are not known may have any.
func evaluated(s *spec.Schema) spec.Schema {
	free, _ := s.Extensions.GetBool(extPreserveUnknownFields)
	either, _ := s.Extensions.GetBool(extIntOrString)
	if free || either || len(s.Type) != 1 || s.Format == "int-or-string" {
		return anything()
	}
	switch out := simple(s.Type[0]); s.Type[0] {
	case "array":
		if s.Items == nil || s.Items.Schema == nil {
			return anything()
		}
		items := evaluated(s.Items.Schema)
		return *spec.ArrayProperty(&items)
	case "object":
		if more := s.AdditionalProperties; more != nil {
			if more.Schema == nil {
				return anything()
			}
			values := evaluated(more.Schema)
			return *spec.MapProperty(&values)
		}
		if len(s.Properties) == 0 {
			return anything()
		}
		for name := range s.Properties {
			property := s.Properties[name]
			out.SetProperty(name, evaluated(&property))
		}
		return out
	default:
		return out
	}
}
