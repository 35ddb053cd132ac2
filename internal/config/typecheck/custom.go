package typecheck

import (
	"reflect"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/portcullis-mesh/portcullis/conversion/custom"
)

// Custom are the kinds of Kubernetes and of CustomResourceDefinitions, perhaps of several clusters. A kind whose schema differs from one cluster to another
// is not known.
type Custom struct {
	Builtin

	kinds    map[schema.GroupVersionResource]schema.GroupVersionKind
	versions map[schema.GroupVersionKind][]*apiextensionsv1.CustomResourceDefinitionVersion
}

var _ Schemas = (*Custom)(nil)

// NewCustom returns the kinds with no definition.
func NewCustom() *Custom {
	return &Custom{
		kinds:    map[schema.GroupVersionResource]schema.GroupVersionKind{},
		versions: map[schema.GroupVersionKind][]*apiextensionsv1.CustomResourceDefinitionVersion{},
	}
}

// Add adds a definition, which must not be changed any more.
func (c *Custom) Add(crd *apiextensionsv1.CustomResourceDefinition) {
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		gv := schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}
		kind := gv.WithKind(crd.Spec.Names.Kind)
		c.kinds[gv.WithResource(crd.Spec.Names.Plural)] = kind
		c.versions[kind] = append(c.versions[kind], v)
	}
}

// KindOf implements [Schemas].
func (c *Custom) KindOf(resource schema.GroupVersionResource) (schema.GroupVersionKind, bool) {
	if kind, ok := c.kinds[resource]; ok {
		return kind, true
	}
	return c.Builtin.KindOf(resource)
}

// SchemaOf implements [Schemas].
func (c *Custom) SchemaOf(kind schema.GroupVersionKind, book func(bytes int) error) (*spec.Schema, error) {
	versions := c.versions[kind]
	if len(versions) == 0 {
		return c.Builtin.SchemaOf(kind, book)
	}
	for _, other := range versions[1:] {
		if !reflect.DeepEqual(other.Schema, versions[0].Schema) {
			return nil, nil //nolint:nilnil // as documented
		}
	}
	var refused error
	s, err := custom.SchemaOf(versions[0], func(bytes int) error {
		refused = book(bytes)
		return refused
	})
	if err != nil || s == nil || len(s.Properties) == 0 {
		return nil, refused
	}
	s.SetProperty("metadata", typeReader{}.schema(reflect.TypeFor[metav1.ObjectMeta]()))
	return s, nil
}
