package registrar

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/cluster/reconcile"
)

// takeover is how long after a Lease was given back another dispatcher may take it.
const takeover = 15 * time.Second

// Kept reports whether a dispatcher keeps the entries (package keeper), and would write them again: their Lease is held, or was a moment
// ago. Both times are by the clock of the API server, since the clocks of the dispatcher and of this machine may differ. It is false where the
// caller may not read the Lease.
func (r *Registrar) Kept(ctx context.Context, name string) (bool, error) {
	lease, err := r.client.CoordinationV1().Leases(reconcile.Namespace).Get(ctx, reconcile.EntriesLease(name).Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("lease/%s/%s: %w", reconcile.Namespace, reconcile.EntriesLease(name).Name, err)
	}
	s := &lease.Spec
	if s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return false, nil
	}
	return r.now().Sub(writtenAt(lease)) < max(time.Duration(*s.LeaseDurationSeconds)*time.Second, takeover), nil
}

// writtenAt is when a Lease was written last. The API server notes it for each writer; RenewTime is by the clock of the dispatcher.
func writtenAt(lease *coordinationv1.Lease) time.Time {
	var last time.Time
	for _, m := range lease.ManagedFields {
		if m.Time != nil && m.Time.After(last) {
			last = m.Time.Time
		}
	}
	if last.IsZero() {
		return lease.Spec.RenewTime.Time
	}
	return last
}

// removeLease deletes the Lease of entries that a dispatcher has kept.
func (r *Registrar) removeLease(ctx context.Context, name string, dryRun bool) (Diff, error) {
	name = reconcile.EntriesLease(name).Name
	c := Diff{Object: "lease/" + reconcile.Namespace + "/" + name, Action: Deleted}
	err := r.client.CoordinationV1().Leases(reconcile.Namespace).Delete(ctx, name, metav1.DeleteOptions{DryRun: dry(dryRun)})
	if apierrors.IsNotFound(err) {
		c.Action = Absent
		return c, nil
	}
	if err != nil {
		return Diff{}, fmt.Errorf("%s: %w", c.Object, err)
	}
	return c, nil
}
