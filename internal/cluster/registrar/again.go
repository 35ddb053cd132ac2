package registrar

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
)

// Again has the last changes of the two objects of a cluster (package touch). With the Cluster alone it has seen none. One goroutine uses it.
type Again struct {
	// Cluster is the cluster that the entries serve. Required.
	Cluster string
	// Delay is how long after a change the later write is; 0 is touch.Delay.
	Delay time.Duration

	mutating, validating touch.Rewrite
}

// Due returns the objects that are to be written once more now. The objects are as Read returned them at the time now. An object that was
// not made for the cluster stays as it is.
func (a *Again) Due(o registration.Objects, now time.Time) (due registration.Objects) {
	a.mutating.Delay, a.validating.Delay = a.Delay, a.Delay
	o = o.For(a.Cluster)
	if m := o.Mutating; m != nil && a.mutating.Due(m, touch.Mark(m), now) {
		due.Mutating = m
	}
	if v := o.Validating; v != nil && a.validating.Due(v, touch.Mark(v), now) {
		due.Validating = v
	}
	return due
}

// Pending reports whether either object is still to be written once more.
func (a *Again) Pending(o registration.Objects) bool {
	o = o.For(a.Cluster)
	return o.Mutating != nil && a.mutating.Pending(o.Mutating, touch.Mark(o.Mutating)) ||
		o.Validating != nil && a.validating.Pending(o.Validating, touch.Mark(o.Validating))
}

// WriteAgain writes objects once more that are due. A conflict with another writer is no error, and leaves the object pending.
func (r *Registrar) WriteAgain(ctx context.Context, due registration.Objects, a *Again) (err error) {
	if due.Mutating != nil {
		err = r.mutating.writeAgain(ctx, due.Mutating, &a.mutating)
	}
	if due.Validating != nil {
		err = errors.Join(err, r.validating.writeAgain(ctx, due.Validating, &a.validating))
	}
	return err
}

func (k kind[T]) writeAgain(ctx context.Context, o T, c *touch.Rewrite) error {
	next := k.clone(o)
	next.SetAnnotations(merged(o.GetAnnotations(), map[string]string{touch.Annotation: touch.Mark(o)}))
	_, err := k.client.Update(ctx, next, metav1.UpdateOptions{FieldManager: FieldManager})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", k.object(o.GetName()), err)
	}
	c.Wrote()
	return nil
}
