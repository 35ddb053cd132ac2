package conversion

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// Raw changes and compares objects as the JSON that they are, without knowing types: nothing is defaulted, and no field
// is lost.
type Raw struct{}

// Apply applies a patch to an object as ApplyPatch does, and refuses what StillReadable refuses. changed is
// Patched.Changed; the result is the object itself when nothing changed.
func (Raw) Apply(object, patch []byte) (result []byte, changed bool, err error) {
	p, err := ApplyPatch(object, patch)
	if err == nil && p.Changed {
		err = StillReadable(object, p.Raw)
	}
	if err != nil {
		return nil, false, err
	}
	return p.Raw, p.Changed, nil
}

// Diff is DiffPatch.
func (Raw) Diff(from, to []byte) ([]byte, error) { return DiffPatch(from, to) }

// StillReadable refuses a patched object from which the patch took what makes a document an object of Kubernetes: a kind,
// and an apiVersion that can be parsed if there is one. kube-apiserver decodes the result of every patch, that of objects
// without a Go type too. An object that was none before the patch need not be one after it.
func StillReadable(from, to []byte) error {
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
		return errors.New("it has no kind") // The error itself quotes the whole object.
	}
	return err
}
