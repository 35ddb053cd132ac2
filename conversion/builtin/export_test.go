package builtin

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// Decode is how the codec reads an object, for benchmarks.
func (c *Codec) Decode(raw []byte) (runtime.Object, error) {
	d, err := c.types.read(raw)
	return d.object, err
}

// SetDefaults is how the codec sets the defaults of an object, for benchmarks.
func (c *Codec) SetDefaults(object runtime.Object) {
	c.types.scheme(object.GetObjectKind().GroupVersionKind()).Default(object)
}

// Apply is Apply of a session for one patch alone.
func (c *Codec) Apply(object, patch []byte) (result []byte, changed bool, err error) {
	return c.NewPatchSession(nil).Apply(object, patch)
}

// Diff is Diff of a session without a patch.
func (c *Codec) Diff(from, to []byte) ([]byte, error) { return c.NewPatchSession(nil).Diff(from, to) }

// ApplySlowly is Apply without changeMetadata.
func (s *PatchSession) ApplySlowly(object, patch []byte) (result []byte, changed bool, err error) {
	kind, err := conversion.KindOf(object)
	if err != nil || s.codec.types.scheme(kind) == nil {
		return s.applyRaw(object, patch, "")
	}
	patched, applied, err := conversion.Patch(nil, object, patch)
	if err != nil || !applied {
		return patched, false, err
	}
	return s.change(object, patch, patched, kind)
}

// Know has the session take its result of a patch for another text that is equal to it.
func (s *PatchSession) Know(result, other []byte) {
	if s.latest.is(result) {
		s.latest.raw = other
	}
}
