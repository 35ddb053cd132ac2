package config

import (
	"slices"

	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// Enforced returns the object, a Policy in mode enforce in all its clusters. An object of another kind is returned as it is.
func (o *Object) Enforced() Object {
	changed := *o
	changed.variants = slices.Clone(o.variants)
	for i := range changed.variants {
		v := &changed.variants[i]
		v.Mode = kinds.ModeEnforce
		if p, ok := v.policy.(*policy.Validating); ok {
			v.policy = p.BindShort(bindingOf(o.Name, v.Mode))
		}
	}
	return changed
}
