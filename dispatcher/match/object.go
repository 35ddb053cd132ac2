package match

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// object is one object of a request. Its labels, and its conversions to other versions, are made once and only if a hook asks.
type object struct {
	raw  []byte
	once sync.Once
	// once writes the fields below: whether the object has metadata at all, its labels, or why they are unknown.
	found  bool
	labels labels.Set
	err    error

	booked   atomic.Int64 // bytes of the decoded values
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

// labelSet returns the labels of the object; ok is false when there is no object, or when it is the options that a client
// connects with, which have no metadata: then no selector matches it (SEMANTICS C17).
func (o *object) labelSet(r *request) (set labels.Set, ok bool, err error) {
	if o == nil {
		return nil, false, nil
	}
	o.once.Do(func() { o.decode(r.memory) })
	// The options that a client connects with (PodExecOptions and the like) have no metadata; everything else has, even if empty.
	return o.labels, o.found || r.operation != operationConnect, o.err
}

// labelFactor is the memory of labels as a map, for each of their bytes. Measured for labels of three characters without a value.
const labelFactor = 12

// memoryError is why an object was not decoded that might have been.
type memoryError struct{ error }

// memoryStatus is the status of Memory in an error; nil if it is another one.
func memoryStatus(err error) *apierrors.StatusError {
	var refused *memoryError
	var status *apierrors.StatusError
	if errors.As(err, &refused) && errors.As(refused.error, &status) {
		return status
	}
	return nil
}

func (o *object) book(m Memory, n int64) error {
	if err := m.Grow(n); err != nil {
		return &memoryError{err}
	}
	o.booked.Add(n)
	return nil
}

func (o *object) decode(m Memory) {
	o.found, o.labels, o.err = metadataLabels(o.raw, func(n int) error { return o.book(m, labelFactor*int64(n)) })
	if o.err != nil && memoryStatus(o.err) == nil {
		o.err = fmt.Errorf("labels cannot be read, the object is not JSON: %w", o.err)
	}
}
