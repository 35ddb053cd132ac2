package serve

import (
	"context"
	"time"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/config/service"
	"github.com/portcullis-mesh/portcullis/dispatcher/session"
)

const (
	// rotateInterval is the pause before a failed rotation is tried again. A host that turns ready ends it early.
	rotateInterval = time.Second
	// rotateTimeout bounds one try.
	rotateTimeout = 5 * time.Second
)

// rotate puts hooks in rotation whose hosts are ready, until ctx ends. Other dispatchers do so too.
func (a *controlPlane) rotate(ctx context.Context) {
	t := time.NewTicker(rotateInterval)
	defer t.Stop()
	for {
		if ready := readyHooks(a.hosts.Pending()); len(ready) > 0 {
			if err := a.rotateOnce(ctx, ready); err != nil && ctx.Err() == nil {
				a.log.Warn("hooks whose hosts are ready stay pending for now", "hooks", len(ready), "error", err)
			}
		}
		select {
		case <-a.hosts.Readied():
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

func (a *controlPlane) rotateOnce(ctx context.Context, ready []service.Ready) error {
	ctx, cancel := context.WithTimeout(ctx, rotateTimeout)
	defer cancel()
	return a.service.Rotate(ctx, ready)
}

// readyHooks are the pending hooks that a host has answered to be ready.
func readyHooks(all []session.Pending) []service.Ready {
	var out []service.Ready
	for _, p := range all {
		if p.Ready {
			out = append(out, service.Ready{Key: config.KeyOf(p.Hook), Hook: p.Hook.ID.Name, Host: p.Host})
		}
	}
	return out
}
