package builtin

import "k8s.io/apimachinery/pkg/runtime"

// Decode is how the codec reads an object, for benchmarks.
func (c *Codec) Decode(raw []byte) (runtime.Object, error) {
	d, err := c.types.read(raw)
	return d.object, err
}

// SetDefaults is how the codec sets the defaults of an object, for benchmarks.
func (c *Codec) SetDefaults(object runtime.Object) {
	c.types.scheme(object.GetObjectKind().GroupVersionKind()).Default(object)
}
