package oracle

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// newObjectInterfaces makes the plugins' knowledge of objects: the types of Kubernetes, and the custom resources of the
// options, as the API servers of both have them.
func newObjectInterfaces(o Options) (admission.ObjectInterfaces, error) {
	scheme := legacyscheme.Scheme
	all := &admission.RuntimeObjectInterfaces{
		ObjectCreater: maker{scheme}, ObjectTyper: scheme, ObjectDefaulter: scheme,
		EquivalentResourceMapper: o.Equivalents,
	}
	if o.Equivalents == nil {
		all.EquivalentResourceMapper = runtime.NewEquivalentResourceRegistry()
	}
	converters := convertors{ObjectConvertor: scheme, custom: map[schema.GroupKind]runtime.ObjectConvertor{}}
	factory, err := conversion.NewCRConverterFactory(nil, nil)
	if err != nil {
		return nil, err
	}
	for _, crd := range o.Definitions {
		kind := schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
		if converters.custom[kind], _, err = factory.NewConverter(withStrategy(crd)); err != nil {
			return nil, fmt.Errorf("CustomResourceDefinition %s: %w", crd.Name, err)
		}
	}
	all.ObjectConvertor = converters
	return all, nil
}

// withStrategy is a definition with the strategy that the API server's defaults give it.
func withStrategy(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	if crd.Spec.Conversion != nil {
		return crd
	}
	crd = crd.DeepCopy()
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	return crd
}

// maker makes empty objects: of groups that are not built in, unstructured ones.
type maker struct{ scheme *runtime.Scheme }

// New implements runtime.ObjectCreater.
func (m maker) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	if m.scheme.IsGroupRegistered(kind.Group) {
		return m.scheme.New(kind)
	}
	custom := &unstructured.Unstructured{}
	custom.SetGroupVersionKind(kind)
	return custom, nil
}

// convertors convert objects of built-in kinds, and custom resources by their definitions.
type convertors struct {
	runtime.ObjectConvertor

	custom map[schema.GroupKind]runtime.ObjectConvertor
}

// Convert implements runtime.ObjectConvertor.
func (c convertors) Convert(in, out, context any) error {
	from, isCustom := in.(*unstructured.Unstructured)
	to, intoCustom := out.(*unstructured.Unstructured)
	if !isCustom || !intoCustom {
		return c.ObjectConvertor.Convert(in, out, context)
	}
	switch by, ok := c.custom[to.GroupVersionKind().GroupKind()]; {
	case ok:
		return by.Convert(in, out, context)
	case from.GroupVersionKind().GroupVersion() != to.GroupVersionKind().GroupVersion():
		return fmt.Errorf("%s is of no CustomResourceDefinition", from.GroupVersionKind())
	}
	to.SetUnstructuredContent(from.UnstructuredContent())
	return nil
}
