package conversion

import "k8s.io/apimachinery/pkg/runtime/schema"

// ResourceKind is one way to reach a resource of an API server, and the kind that its objects have there. It is
// comparable.
type ResourceKind struct {
	// Resource is the resource.
	Resource schema.GroupVersionResource
	// Subresource is the subresource; empty for the resource itself.
	Subresource string
	// Kind is the kind of the objects.
	Kind schema.GroupVersionKind
}
