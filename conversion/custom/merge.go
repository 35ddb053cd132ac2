package custom

import (
	"encoding/json"
	"fmt"
	"sync"
	"unique"
	"weak"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// mergeSchema is the schema by which the API server merges objects of a version. Its type is made when it is asked for, and kept for as long as it is in
// use: it takes many times the memory of the text.
type mergeSchema struct {
	text unique.Handle[string] // JSON; definitions of many clusters are the same

	mu   sync.Mutex // one type is made at a time
	made weak.Pointer[typed.ParseableType]
}

// mergeTypeFactor times the length of the text is the memory of the type of a schema.
const mergeTypeFactor = 32

// MergeType returns the type by which the API server merges an apply configuration with an object of a kind: the type of the schema that it publishes
// (buildKubeNative of k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder). It is nil if the kind is none of the definition.
//
// Before the type is made, book is called with the memory that it takes, in bytes; its error ends the call, and nil books nothing.
func (d *Definition) MergeType(kind schema.GroupVersionKind, book func(bytes int64) error) (*typed.ParseableType, error) {
	s := d.merge[kind.Version]
	if s == nil || kind.Group != d.group || kind.Kind != d.kind {
		return nil, nil //nolint:nilnil // as documented
	}
	text := s.text.Value()
	if book != nil {
		if err := book(mergeTypeFactor * int64(len(text))); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if made := s.made.Value(); made != nil {
		return made, nil
	}
	made, err := mergeTypeOf(text)
	if err != nil {
		return nil, fmt.Errorf("the schema of version %s of CustomResourceDefinition %s: %w", kind.Version, d.name, err)
	}
	s.made = weak.Make(made)
	return made, nil
}

// mergeSchemaOf keeps the part of the schema of a version that is read when objects are merged.
func mergeSchemaOf(v *apiextensionsv1.CustomResourceDefinitionVersion) (*mergeSchema, error) {
	text := []byte("null")
	if v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
		var err error
		if text, err = json.Marshal(shape(v.Schema.OpenAPIV3Schema)); err != nil {
			return nil, err
		}
	}
	return &mergeSchema{text: unique.Make(string(text))}, nil
}

// shape is a schema without the descriptions and the validation of values.
func shape(s *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if s == nil {
		return nil
	}
	out := &apiextensionsv1.JSONSchemaProps{
		Type: s.Type, Format: s.Format, Default: s.Default, XPreserveUnknownFields: s.XPreserveUnknownFields, XEmbeddedResource: s.XEmbeddedResource,
		XIntOrString: s.XIntOrString, XListMapKeys: s.XListMapKeys, XListType: s.XListType, XMapType: s.XMapType,
	}
	if s.Items != nil && s.Items.Schema != nil {
		out.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: shape(s.Items.Schema)}
	}
	if more := s.AdditionalProperties; more != nil {
		out.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: more.Allows, Schema: shape(more.Schema)}
	}
	if len(s.Properties) > 0 {
		out.Properties = make(map[string]apiextensionsv1.JSONSchemaProps, len(s.Properties))
		for name := range s.Properties {
			property := s.Properties[name]
			out.Properties[name] = *shape(&property)
		}
	}
	return out
}

// mergeTypeOf makes the type of a schema.
func mergeTypeOf(text string) (*typed.ParseableType, error) {
	const object, metadata = "object", "metadata"
	root, err := publishedSchema(text)
	if err != nil {
		return nil, err
	}
	var meta spec.Schema
	if err := json.Unmarshal([]byte(objectMeta), &meta); err != nil {
		return nil, err
	}
	types, err := schemaconv.ToSchemaFromOpenAPI(map[string]*spec.Schema{object: root, metadata: &meta}, false)
	if err != nil {
		return nil, err
	}
	named := object
	return &typed.ParseableType{Schema: types, TypeRef: smdschema.TypeRef{NamedType: &named}}, nil
}

// SchemaOf returns the schema of a version as the API server publishes it, without descriptions and the validation of values; nil if there is none. The
// schema of its metadata is left to the caller. Before it is made, book is called with the length of its text, in bytes; its error ends the call.
func SchemaOf(v *apiextensionsv1.CustomResourceDefinitionVersion, book func(bytes int) error) (*spec.Schema, error) {
	s, err := mergeSchemaOf(v)
	if err != nil || v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return nil, err
	}
	if err := book(len(s.text.Value())); err != nil {
		return nil, err
	}
	return publishedSchema(s.text.Value())
}

// publishedSchema is a schema as the API server publishes it. A schema that is not structural is published as a free object.
func publishedSchema(text string) (*spec.Schema, error) {
	var of *apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal([]byte(text), &of); err != nil {
		return nil, err
	}
	free := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
	if of == nil {
		return free, nil
	}
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(of, internal, nil); err != nil {
		return nil, err
	}
	s, err := structural.NewStructural(internal)
	if err != nil || len(structural.ValidateStructural(nil, s)) > 0 {
		return free, nil //nolint:nilerr // as documented
	}
	root := s.ToKubeOpenAPI()
	root.AddExtension(embeddedResource, true)
	addMetadata(root)
	return root, nil
}

const embeddedResource = "x-kubernetes-embedded-resource"

// addMetadata adds the fields that each object has to a schema, and to the objects in it.
func addMetadata(s *spec.Schema) {
	for name := range s.Properties {
		property := s.Properties[name]
		addMetadata(&property)
		s.Properties[name] = property
	}
	if s.Items != nil && s.Items.Schema != nil {
		addMetadata(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		addMetadata(s.AdditionalProperties.Schema)
	}
	if embedded, _ := s.Extensions.GetBool(embeddedResource); embedded {
		s.SetProperty("apiVersion", *spec.StringProperty())
		s.SetProperty("kind", *spec.StringProperty())
		s.SetProperty("metadata", *spec.RefSchema("#/components/schemas/metadata"))
	}
}

// objectMeta is the schema of metadata, without descriptions.
const objectMeta = `{"type": "object", "properties": {
"annotations": {"type": "object", "additionalProperties": {"type": "string"}},
"creationTimestamp": {"type": "string", "format": "date-time"},
"deletionGracePeriodSeconds": {"type": "integer"},
"deletionTimestamp": {"type": "string", "format": "date-time"},
"finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
"generateName": {"type": "string"},
"generation": {"type": "integer"},
"labels": {"type": "object", "additionalProperties": {"type": "string"}},
"managedFields": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "object", "properties": {
  "apiVersion": {"type": "string"}, "fieldsType": {"type": "string"}, "fieldsV1": {"type": "object"}, "manager": {"type": "string"},
  "operation": {"type": "string"}, "subresource": {"type": "string"}, "time": {"type": "string", "format": "date-time"}}}},
"name": {"type": "string"},
"namespace": {"type": "string"},
"ownerReferences": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"], "items": {
  "type": "object", "x-kubernetes-map-type": "atomic", "properties": {
  "apiVersion": {"type": "string", "default": ""}, "blockOwnerDeletion": {"type": "boolean"}, "controller": {"type": "boolean"},
  "kind": {"type": "string", "default": ""}, "name": {"type": "string", "default": ""}, "uid": {"type": "string", "default": ""}}}},
"resourceVersion": {"type": "string"},
"selfLink": {"type": "string"},
"uid": {"type": "string"}}}`
