package chain

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"

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
	if err == nil && p.Changed {
		err = stillReadable(object, p.Raw)
	}
	return p.Raw, p.Changed, err
}

// stillReadable refuses a patch that takes away what makes a document an object of Kubernetes: a kind, and an apiVersion
// that can be parsed if there is one. kube-apiserver decodes the result of every patch, objects without a type too.
func stillReadable(from, to []byte) error {
	err := readable(to)
	if err != nil && readable(from) == nil {
		return fmt.Errorf("the patched object cannot be read: %w", err)
	}
	return nil
}

func readable(object []byte) error {
	if _, err := json.DefaultMetaFactory.Interpret(object); err != nil {
		return err
	}
	_, _, err := unstructured.UnstructuredJSONScheme.Decode(object, nil, &unstructured.Unstructured{})
	if runtime.IsMissingKind(err) {
		return errors.New("it has no kind") // the error itself quotes the whole object
	}
	return err
}

// Diff implements [Codec].
func (RawCodec) Diff(from, to []byte) ([]byte, error) {
	return conversion.DiffPatch(from, to)
}
