package conversion

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

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

// KindOf reads apiVersion and kind of a JSON object, no further than it has to. A missing field, or null, is empty.
func KindOf(object []byte) (schema.GroupVersionKind, error) {
	d := decoder{Scanner: Scanner{data: object}}
	if d.Next() != '{' {
		return schema.GroupVersionKind{}, errNoObject
	}
	var apiVersion, kind string
	for more, missing := d.enter('{'), 2; more && missing > 0; more = d.more('}') {
		switch string(unescaped(d.name())) {
		case "apiVersion":
			d.readString(&apiVersion, "apiVersion")
			missing--
		case "kind":
			d.readString(&kind, "kind")
			missing--
		default:
			d.value()
		}
	}
	switch {
	case d.err != nil:
		return schema.GroupVersionKind{}, fmt.Errorf("read the kind: %w", d.err)
	case d.wrongType != "":
		return schema.GroupVersionKind{}, fmt.Errorf("read the kind: %s", d.wrongType)
	}
	return schema.FromAPIVersionAndKind(apiVersion, kind), nil
}
