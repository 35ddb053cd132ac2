package match

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// object is one object of a request. Its labels, and what it is in other versions, are made once and only if a hook asks.
type object struct {
	raw  []byte
	once sync.Once
	// What follows is written by once: whether the object has metadata at all, its labels, or why they are unknown.
	found  bool
	labels labels.Set
	err    error

	mu       sync.Mutex
	versions []*version // grows under mu
}

// newObject returns nil for an absent object.
func newObject(o *admissionv1.Object) *object {
	if o == nil || string(o.GetRaw()) == "null" {
		return nil
	}
	return &object{raw: o.GetRaw()}
}

// labelSet returns the labels of the object; ok is false when there is no object, or it has no metadata, so that no
// selector matches it (SEMANTICS C17).
func (o *object) labelSet(in operation) (set labels.Set, ok bool, err error) {
	if o == nil {
		return nil, false, nil
	}
	o.once.Do(o.decode)
	// What a client connects with (PodExecOptions and the like) has no metadata; everything else has, even if empty.
	return o.labels, o.found || in != connect, o.err
}

func (o *object) decode() {
	o.found, o.labels, o.err = metadataLabels(o.raw)
	if o.err != nil {
		o.err = fmt.Errorf("labels cannot be read, the object is not JSON: %w", o.err)
	}
}

// namespaceLabels is GetNamespaceLabels of k8s.io/apiserver's predicates/namespace: a Namespace that is being written
// is selected by its new labels, everything else by the labels that its namespace has now (SEMANTICS C16).
func (a *Attributes) namespaceLabels(ctx context.Context) (labels.Set, error) {
	if a.writesNamespace() {
		set, ok, err := a.object.labelSet(a.operation)
		if err == nil && !ok {
			err = errors.New("the request to write a namespace has no object")
		}
		return set, err
	}
	return a.cluster.NamespaceLabels(ctx, a.req.GetNamespace())
}

func (a *Attributes) writesNamespace() bool {
	return a.original.Resource.Resource == "namespaces" && a.req.GetSubResource() == "" &&
		(a.operation == create || a.operation == update)
}

// namespaceError is how a failed look-up refuses a review: 404 for a namespace that does not exist, else 500.
func namespaceError(err error) *apierrors.StatusError {
	var status apierrors.APIStatus
	if apierrors.IsNotFound(err) && errors.As(err, &status) {
		return &apierrors.StatusError{ErrStatus: status.Status()}
	}
	return apierrors.NewInternalError(err)
}
