package config

import (
	"maps"
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
			v.policy = p.BindShort(bindingOf(o.Name, v.Mode), o.Short.Spec.VariableNames())
		}
	}
	return changed
}

// WithParameter returns the object, a Policy that is in force in a cluster, with another value of a parameter there. The problems are about the value,
// which is of the type of the others.
func (d *Decoder) WithParameter(o *Object, cluster, name string, value any) (Object, Problems) {
	changed, short := *o, *o.Short
	short.Spec.Parameters = slices.Clone(short.Spec.Parameters)
	for i := range short.Spec.Parameters {
		if p := &short.Spec.Parameters[i]; p.Name == name {
			values := map[string]any{}
			maps.Copy(values, p.ByCluster)
			values[cluster] = value
			p.ByCluster = values
		}
	}
	changed.Short, changed.variants = &short, nil
	f := &fileReader{Decoder: d, file: o.File}
	(&document{fileReader: f, lineIndex: &lineIndex{line: o.Line, last: o.Line}, kind: o.Kind, key: o.Key}).compileShort(&changed)
	return changed, f.problems
}
