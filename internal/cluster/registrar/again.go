package registrar

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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

	mutating, validating touch.Change
}

// WriteAgain writes an object of the entries once more when its last change is old enough. pending: an object is still to be written. The
// objects are as Read returned them at the time now. An object that was not made for the cluster stays as it is. A conflict with another
// writer is no error, and leaves the object pending.
func (r *Registrar) WriteAgain(
	ctx context.Context, m *admissionregistrationv1.MutatingWebhookConfiguration, v *admissionregistrationv1.ValidatingWebhookConfiguration,
	a *Again, now time.Time,
) (pending bool, err error) {
	a.mutating.Delay, a.validating.Delay = a.Delay, a.Delay
	if m != nil {
		pending, err = r.mutating.writeAgain(ctx, a.Cluster, m, &a.mutating, now)
	}
	if v != nil {
		more, wrong := r.validating.writeAgain(ctx, a.Cluster, v, &a.validating, now)
		pending, err = pending || more, errors.Join(err, wrong)
	}
	return pending, err
}

func (k kind[T]) writeAgain(ctx context.Context, cluster string, o T, c *touch.Change, now time.Time) (pending bool, err error) {
	if of, ours := registration.MadeFor(o); !ours || of != cluster {
		return false, nil
	}
	if !c.Due(o, touch.Mark(o), now) {
		return c.Pending(o, touch.Mark(o)), nil
	}
	next := k.clone(o)
	next.SetAnnotations(merged(o.GetAnnotations(), map[string]string{touch.Annotation: touch.Mark(o)}))
	_, err = k.client.Update(ctx, next, metav1.UpdateOptions{FieldManager: FieldManager})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return true, fmt.Errorf("%s: %w", k.object(o.GetName()), err)
	}
	c.Wrote()
	return false, nil
}
