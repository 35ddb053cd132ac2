package custom

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// Default returns an object with the defaults of its version's schema, as the API server fills them in after each patch of
// a mutating webhook: unstructuredDefaulter of customresource_handler.go. Like there nothing is pruned, and an object of
// another kind, a Scale for example, or of an unknown version is returned as it is. Values that are there keep their spelling. raw is
// not changed.
//
// Before the defaults are filled in, book is called with the memory that they take, in bytes; its error ends the call, and nil books nothing.
// Defaults past MaxDefaultBytes are an error, as are those that take too much work to find. ctx ends the call between its steps.
func (d *Definition) Default(ctx context.Context, raw []byte, book func(bytes int64) error) ([]byte, error) {
	if len(d.defaults) == 0 {
		return raw, nil
	}
	defaulted, err := d.fillIn(ctx, raw, book)
	if err != nil {
		return nil, fmt.Errorf("filling in the defaults of CustomResourceDefinition %s: %w", d.name, err)
	}
	return defaulted, nil
}

func (d *Definition) fillIn(ctx context.Context, raw []byte, book func(bytes int64) error) ([]byte, error) {
	o, err := parse(raw)
	if err != nil {
		return nil, err
	}
	kind := o.kind()
	defaults := d.defaults[kind.Version]
	if kind.Group != d.group || kind.Kind != d.kind || defaults == nil {
		return raw, nil
	}
	var before map[string]any
	if err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &before); err != nil {
		return nil, err
	}
	added := measurement{done: ctx.Err}
	if err = added.walk(before, defaults); err != nil {
		return nil, err
	}
	if added.bytes == 0 {
		return raw, nil
	}
	if book != nil {
		if err = book(carryFactor * added.bytes); err != nil {
			return nil, err
		}
	}
	after := runtime.DeepCopyJSON(before)
	if defaulting.Default(after, defaults); reflect.DeepEqual(before, after) {
		return raw, nil
	}
	return carry(raw, before, after)
}

// carry makes the change between two readings of a document in the document itself.
func carry(raw []byte, before, after map[string]any) ([]byte, error) {
	from, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	to, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	patch, err := conversion.DiffPatch(from, to)
	if err != nil {
		return nil, err
	}
	p, err := conversion.ApplyPatch(raw, patch)
	return p.Raw, err
}

// defaultsOf reads the defaults of a version: the part of crdHandler.getOrCreateServingInfoFor that prepares the schema for defaulting. It is nil
// when there are none.
func defaultsOf(v *apiextensionsv1.CustomResourceDefinitionVersion, preserveUnknownFields bool) (*schema.Structural, error) {
	if v.Schema == nil || !hasDefault(v.Schema.OpenAPIV3Schema) {
		return nil, nil //nolint:nilnil // no defaults are no error, and documented
	}
	internal := &apiextensions.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(v.Schema, internal, nil); err != nil {
		return nil, err
	}
	s, err := schema.NewStructural(internal.OpenAPIV3Schema)
	switch {
	case preserveUnknownFields && err != nil:
		return nil, nil //nolint:nilnil // it need not be structural then, and has no defaults
	case err != nil:
		return nil, err
	case !preserveUnknownFields:
		s = s.DeepCopy() // PruneDefaults changes the values, which s shares with the CustomResourceDefinition.
		if err := defaulting.PruneDefaults(s); err != nil {
			return nil, err
		}
	}
	return slim(s), nil
}

// hasDefault reports whether there may be a default in a schema. Most have none, and need not be read.
func hasDefault(s *apiextensionsv1.JSONSchemaProps) bool {
	if s == nil {
		return false
	}
	if s.Default != nil || s.Items != nil && hasDefault(s.Items.Schema) ||
		s.AdditionalProperties != nil && hasDefault(s.AdditionalProperties.Schema) {
		return true
	}
	for name := range s.Properties {
		property := s.Properties[name]
		if hasDefault(&property) {
			return true
		}
	}
	return false
}

// slim is the part of a schema that defaulting.Default reads: the way to each default. It is nil when there is none.
func slim(s *schema.Structural) *schema.Structural {
	if s == nil {
		return nil
	}
	out := &schema.Structural{Items: slim(s.Items), Properties: map[string]schema.Structural{}}
	out.Default = schema.JSON{Object: runtime.DeepCopyJSONValue(s.Default.Object)}
	out.Nullable = s.Nullable
	if s.AdditionalProperties != nil {
		if more := slim(s.AdditionalProperties.Structural); more != nil {
			out.AdditionalProperties = &schema.StructuralOrBool{Structural: more}
		}
	}
	for name := range s.Properties {
		property := s.Properties[name]
		if kept := slim(&property); kept != nil {
			out.Properties[name] = *kept
		} else if out.AdditionalProperties != nil {
			out.Properties[name] = schema.Structural{} // It is not an additional property.
		}
	}
	if out.Default.Object == nil && out.Items == nil && len(out.Properties) == 0 && out.AdditionalProperties == nil {
		return nil
	}
	return out
}
