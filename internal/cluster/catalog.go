package cluster

import (
	"fmt"
	"slices"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/custom"
)

// definition is a CustomResourceDefinition as it is served. It is immutable.
type definition struct {
	resource schema.GroupResource
	kind     schema.GroupKind
	custom   *custom.Definition
	err      error // if it cannot be used
}

// define compiles a CustomResourceDefinition, which it does not change or keep.
func define(crd *apiextensionsv1.CustomResourceDefinition) *definition {
	d := &definition{
		resource: schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural},
		kind:     schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind},
	}
	d.custom, d.err = custom.Compile(crd)
	return d
}

// bytes is the memory that the definition takes.
func (d *definition) bytes() int64 {
	if d.err != nil {
		return int64(len(d.err.Error()))
	}
	return d.custom.Bytes()
}

func (d *definition) equivalents(resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error) {
	if d.err != nil {
		return nil, d.err
	}
	return among(d.custom.Equivalents(subresource), resource, subresource)
}

// among returns the ways if the given one is among them. Otherwise the API server serves more than is known, and the ways are
// not complete.
func among(ways []conversion.ResourceKind, resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error) {
	if !slices.ContainsFunc(ways, func(way conversion.ResourceKind) bool { return way.Resource == resource }) {
		return nil, &notServedError{resource: resource, subresource: subresource}
	}
	return ways, nil
}

// notServedError: the cluster sends a review of a resource that it is not known to serve.
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

// catalog holds the custom resources of a cluster. Its methods may be called concurrently; one goroutine at a time calls replace.
type catalog struct {
	resources sync.Map // of *definition, by schema.GroupResource
	kinds     sync.Map // of *definition, by schema.GroupKind
}

// replace has a definition take the place of another one. A nil one is not served. At most one served definition has a kind.
func (c *catalog) replace(before, after *definition) {
	if after != nil {
		c.resources.Store(after.resource, after)
		c.kinds.Store(after.kind, after)
	}
	if before != nil { // a name that another definition has taken over stays
		c.resources.CompareAndDelete(before.resource, before)
		c.kinds.CompareAndDelete(before.kind, before)
	}
}

// ofResource returns the definition of a resource; nil for none.
func (c *catalog) ofResource(resource schema.GroupResource) *definition {
	d, _ := itemOf[*definition](c.resources.Load(resource))
	return d
}

// ofKind returns the definition of a kind; nil for none.
func (c *catalog) ofKind(kind schema.GroupKind) *definition {
	d, _ := itemOf[*definition](c.kinds.Load(kind))
	return d
}
