package builtin

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// Convert returns an object in another version of its kind, by way of Kubernetes' internal version, as the API server converts it for a hook with
// matchPolicy Equivalent (SEMANTICS C13, C14). Nothing is defaulted, as upstream: objects in reviews have their own version's defaults, and get the
// other's only with a patch, by Apply. An object that is in the version already is returned as it is.
//
// Fields that our types do not know stay at their path, if there is such a place in the other version and nothing in it yet; the others are left out.
// conversion.Rebase carries a hook's changes of the result back to an object that has those fields.
//
// The error wraps ErrUnknownKind when our types lack either version.
func (c *Codec) Convert(raw []byte, to schema.GroupVersionKind) ([]byte, error) {
	from, err := conversion.KindOf(raw)
	if err != nil {
		return nil, fmt.Errorf("convert to %s: %w", name(to), err)
	}
	if from == to {
		return raw, nil
	}
	d, err := c.types.decode(raw, from)
	switch {
	case errors.Is(err, errAmbiguous):
		c.notKnown(ReasonAmbiguous) // and goes without unknown facts
	case err != nil:
		return nil, fmt.Errorf("convert to %s: %w", name(to), err)
	}
	rest := d.rest
	converted, err := d.as(to)
	if err != nil {
		return nil, fmt.Errorf("convert %s to %s: %w", name(from), name(to), err)
	}
	out, err := converted.encode()
	if err == nil && rest != nil {
		c.notKnown(ReasonUnknownFields)
		out, err = c.graft(out, rest, to)
	}
	if err != nil {
		return nil, fmt.Errorf("convert %s to %s: %w", name(from), name(to), err)
	}
	return out, nil
}

// Default returns a JSON object with the defaults of its kind, as the API server fills them in before admission. An object that is not built in, or that
// our types do not wholly know, is returned as it is. The error is about an object that the API server could not read.
func (c *Codec) Default(raw []byte) ([]byte, error) {
	d, err := c.types.read(raw)
	switch {
	case errors.Is(err, ErrUnknownKind), errors.Is(err, errAmbiguous):
		return raw, nil
	case err != nil:
		return nil, err
	}
	d.setDefaults()
	return d.encode()
}

// graft adds the fields that the former version did not know to a converted object, if its new version does not know them either. If the new version
// knows the name, the field may mean something else there.
func (c *Codec) graft(converted []byte, rest any, kind schema.GroupVersionKind) ([]byte, error) {
	all, err := json.Marshal(graft(parse(converted), rest))
	if err != nil {
		return nil, err
	}
	d, err := c.types.decode(all, kind)
	if err != nil || d.rest == nil {
		return converted, nil //nolint:nilerr // fields that do not fit are left out
	}
	return json.Marshal(graft(parse(converted), d.rest))
}

// graft adds a rest to an object of another type than it was picked from. It adds a member only where the object has all parents of the member and
// not the member itself.
func graft(object, rest any) any {
	switch rest := rest.(type) {
	case map[string]any:
		o, ok := object.(map[string]any)
		for name, v := range rest {
			own, has := o[name]
			if w, isWhole := v.(whole); ok && isWhole && !has {
				o[name] = w.value
			} else if has {
				o[name] = graft(own, v)
			}
		}
	case []any:
		o, ok := object.([]any)
		if !ok || len(o) != len(rest) {
			return object
		}
		for i := range rest {
			o[i] = graft(o[i], rest[i])
		}
	}
	return object
}
