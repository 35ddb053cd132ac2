package builtin

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Convert returns an object in another version of its kind, by way of Kubernetes' internal version, as the API server
// converts it for a hook with matchPolicy Equivalent (SEMANTICS C13, C14). Nothing is defaulted, as upstream: objects in
// reviews have their own version's defaults, and get the other's only with a patch, by Apply. An object that is in the
// version already is returned as it is.
//
// The error wraps ErrUnknownKind when our types do not hold one of the two versions. It wraps ErrUnknownFields when the
// object has fields that they do not know, and then the object is returned too, without them: whether that will do is
// the caller's to decide. See conversion.Carry for the way back.
func (c *Codec) Convert(raw []byte, to schema.GroupVersionKind) ([]byte, error) {
	from, err := kindOf(raw)
	if err != nil {
		return nil, fmt.Errorf("convert to %s: %w", name(to), err)
	}
	if from == to {
		return raw, nil
	}
	d, err := c.types.decode(raw, from)
	if err != nil {
		return nil, fmt.Errorf("convert to %s: %w", name(to), err)
	}
	converted, err := d.as(to)
	if err != nil {
		return nil, fmt.Errorf("convert %s to %s: %w", name(from), name(to), err)
	}
	out, err := converted.encode()
	if err != nil {
		return nil, fmt.Errorf("convert %s to %s: %w", name(from), name(to), err)
	}
	if d.rest != nil {
		return out, fmt.Errorf("convert %s to %s: %w", name(from), name(to), ErrUnknownFields)
	}
	return out, nil
}
