package builtin

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Convert returns an object in another version of its kind, by way of Kubernetes' internal version, as the API server
// converts it for a hook with matchPolicy Equivalent (SEMANTICS C13, C14). What the object's own version has by default
// is there; the other version's defaults are not set, as upstream. An object that is in the version already is returned
// as it is.
//
// The error wraps ErrUnknownKind when our types do not hold one of the two versions. It wraps ErrUnknownFields when the
// object has fields that they do not know, and then the object is returned too, without them: whether that will do is
// the caller's to decide. See Carry for the way back.
func (c *Codec) Convert(raw []byte, to schema.GroupVersionKind) ([]byte, error) {
	from, err := kindOf(raw)
	if err != nil {
		return nil, fmt.Errorf("convert to %s: %w", name(to), err)
	}
	if from == to {
		return raw, nil
	}
	d, loss := c.types.decode(raw, from)
	if loss != nil && !errors.Is(loss, ErrUnknownFields) {
		return nil, fmt.Errorf("convert to %s: %w", name(to), loss)
	}
	d.setDefaults()
	if d, err = d.as(to); err != nil {
		return nil, fmt.Errorf("convert %s to %s: %w", name(from), name(to), err)
	}
	out, err := d.encode()
	if err != nil {
		return nil, fmt.Errorf("convert %s to %s: %w", name(from), name(to), err)
	}
	if loss != nil {
		return out, fmt.Errorf("convert to %s: %w", name(to), loss)
	}
	return out, nil
}
