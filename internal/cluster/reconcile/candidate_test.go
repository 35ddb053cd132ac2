package reconcile

import (
	"context"
	"log/slog"
	"testing"
)

// client-go starts the callback for a gained Lease in a goroutine, which may run after the callback for its loss.
func TestALeaseThatIsLostBeforeItsGainIsToldIsNotHeld(t *testing.T) {
	c := NewCandidate("a", FollowLease(), slog.New(slog.DiscardHandler))
	ctx, lose := context.WithCancel(t.Context())
	c.started(ctx)
	if !c.Leads() {
		t.Error("a Lease that was gained is not held")
	}
	lose()
	c.stopped()
	c.started(ctx)
	if c.Leads() {
		t.Error("a Lease that was lost is held")
	}
}
