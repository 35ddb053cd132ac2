package cluster

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/custom"
)

// definition is a CustomResourceDefinition as it is served. It never changes.
type definition struct {
	resource schema.GroupResource
	kind     schema.GroupKind
	custom   *custom.Definition
	err      error // why it cannot be used
}

// define reads a CustomResourceDefinition, which is not changed or kept.
func define(crd *apiextensionsv1.CustomResourceDefinition) *definition {
	compiled, err := custom.Compile(crd)
	if err != nil {
		return &definition{
			resource: schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural},
			kind:     schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind},
			err:      err,
		}
	}
	return &definition{
		resource: schema.GroupResource{Group: compiled.Group(), Resource: compiled.Plural()},
		kind:     schema.GroupKind{Group: compiled.Group(), Kind: compiled.Kind()},
		custom:   compiled,
	}
}

// equivalents returns the ways to reach the resource.
func (d *definition) equivalents(resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error) {
	if d.err != nil {
		return nil, d.err
	}
	return among(d.custom.Equivalents(subresource), resource, subresource)
}

// among returns the ways if the given one is among them. If it is not, the API server that asks serves what nobody told us
// of: then they are not all.
func among(ways []conversion.ResourceKind, resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error) {
	if !slices.ContainsFunc(ways, func(way conversion.ResourceKind) bool { return way.Resource == resource }) {
		return nil, &notServedError{resource: resource, subresource: subresource}
	}
	return ways, nil
}

// notServedError means that a cluster does not serve what it sends reviews of, as far as is known.
type notServedError struct {
	resource    schema.GroupVersionResource
	subresource string
}

func (e *notServedError) Error() string {
	resource := e.resource.Resource
	if e.subresource != "" {
		resource += "/" + e.subresource
	}
	return fmt.Sprintf("%s of %s is not among the resources that the cluster is known to serve", resource, e.resource.GroupVersion())
}

// catalog are the custom resources of a cluster. It never changes.
type catalog struct {
	resources map[schema.GroupResource]*definition
	kinds     map[schema.GroupKind]*definition
}

// newCatalog makes a catalog. Of two definitions with the same kind, of which the API server serves one, it is told that one
// alone.
func newCatalog(definitions map[string]*definition) *catalog {
	c := &catalog{
		resources: make(map[schema.GroupResource]*definition, len(definitions)),
		kinds:     make(map[schema.GroupKind]*definition, len(definitions)),
	}
	for _, d := range definitions {
		if d != nil {
			c.resources[d.resource], c.kinds[d.kind] = d, d
		}
	}
	return c
}
