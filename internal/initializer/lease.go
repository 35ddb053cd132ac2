package initializer

import (
	"context"
	"fmt"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

const (
	// leaseTTL is how long an object stays when its dispatcher has crashed or does not reach etcd: its name is free again then.
	leaseTTL = 5 * time.Second
	// renewAfter is how often the lease of a hold is renewed. Most holds end before the first time.
	renewAfter = leaseTTL / 3
	// retryAfter is the pause after a renewal that failed.
	retryAfter = 200 * time.Millisecond
)

// errLapsed is that the object is gone without a deletion.
var errLapsed = fmt.Errorf("the object has been dropped, since etcd did not answer for %s", leaseTTL)

// keep has a lease renewed that was asked for at a time, until the hold ends or the time of its review is over. Without an end of the
// hold the lease lapses then.
func (h *Hold) keep(ctx context.Context, lease staged.LeaseID, begun time.Time) {
	ctx, h.leave = context.WithDeadline(context.WithoutCancel(ctx), h.until)
	h.lease = lease
	h.setRenewed(begun)
	h.stager.running.Go(func() {
		for pause := renewAfter - time.Since(begun); clock.Sleep(ctx, pause); {
			pause = renewAfter
			begun := time.Now()
			if err := h.stager.options.Store.Renew(ctx, lease); err == nil {
				h.setRenewed(begun)
			} else if pause = retryAfter; ctx.Err() == nil {
				h.stager.options.Logger.Warn("the lease of a held review is not renewed yet", "lease", lease, "error", err)
			}
		}
	})
}

func (h *Hold) setRenewed(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewed = t
}

// lapsed reports whether the lease has ended by itself, if the object is gone.
func (h *Hold) lapsed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.renewed) >= leaseTTL
}
