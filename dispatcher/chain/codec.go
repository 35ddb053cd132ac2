package chain

import (
	"errors"
	"fmt"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// RawCodec works on the JSON itself, without knowing types: nothing is defaulted, and no field is lost.
type RawCodec struct{}

var _ Codec = RawCodec{}

// Apply implements [Codec].
func (RawCodec) Apply(object, patch []byte) ([]byte, bool, error) {
	p, err := conversion.ApplyPatch(object, patch)
	if errors.Is(err, conversion.ErrUndecodable) {
		return nil, false, fmt.Errorf("%w: %w", ErrBadPatch, err)
	}
	return p.Raw, p.Changed, err
}

// Diff implements [Codec].
func (RawCodec) Diff(from, to []byte) ([]byte, error) {
	return conversion.DiffPatch(from, to)
}
