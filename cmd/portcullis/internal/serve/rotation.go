package serve

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/session"
	"github.com/portcullis-mesh/portcullis/internal/cluster/keeper"
	"github.com/portcullis-mesh/portcullis/internal/cluster/reconcile"
	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
)

const (
	// rotateInterval is the pause before a failed rotation is tried again. A host that turns ready ends it early.
	rotateInterval = time.Second
	// rotateTimeout bounds one try.
	rotateTimeout = 5 * time.Second
	// entriesWait bounds how long a hook with a host stays pending because entries do not bring its requests yet. The dispatcher that
	// writes them may have been killed.
	entriesWait = reconcile.Takeover + touch.Delay + 8*time.Second
)

// rotate puts hooks in rotation whose hosts are ready, until ctx ends. Other dispatchers do so too.
func (a *controlPlane) rotate(ctx context.Context) {
	t := time.NewTicker(rotateInterval)
	defer t.Stop()
	held := map[service.Ready]time.Time{}
	for {
		c := a.live.Configuration()
		if ready := readyHooks(pendingIn(c.Snapshot(), a.hosts.Pending()), entriesBehind(&c, a.kept()), held, time.Now()); len(ready) > 0 {
			if err := a.rotateOnce(ctx, ready); err != nil && ctx.Err() == nil {
				a.log.Warn("hooks whose hosts are ready stay pending for now", "hooks", len(ready), "error", err)
			}
		}
		select {
		case <-a.hosts.Readied():
		case <-c.Next():
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// pendingIn leaves out hooks of another snapshot. Hosts know the hooks of the next one a moment before it is in force (store.Options.OnSnapshot),
// and by the snapshot of before no entries lack them.
func pendingIn(s *match.Snapshot, all []session.Pending) []session.Pending {
	var hooks []*match.Hook
	if s != nil {
		hooks = s.Hooks()
	}
	return slices.DeleteFunc(all, func(p session.Pending) bool {
		i := p.Hook.Ordinal()
		return i >= len(hooks) || hooks[i] != p.Hook
	})
}

func (a *controlPlane) rotateOnce(ctx context.Context, ready []service.Ready) error {
	ctx, cancel := context.WithTimeout(ctx, rotateTimeout)
	defer cancel()
	return a.service.Rotate(ctx, ready)
}

// readyHooks are the pending hooks that a host has answered to be ready, and whose requests the entries of all their clusters bring. A
// cluster whose entries cannot be written delays no hook. held has the times at which hooks were first kept back.
func readyHooks(
	all []session.Pending, entries []keeper.Behind, held map[service.Ready]time.Time, now time.Time,
) (ready []service.Ready) {
	waiting := map[service.Ready]bool{}
	for _, p := range all {
		if !p.Ready {
			continue
		}
		r := service.Ready{Key: config.KeyOf(p.Hook), Hook: p.Hook.ID.Name, Host: p.Host}
		if slices.ContainsFunc(entries, func(b keeper.Behind) bool { return !b.Failed && !b.Brings(p.Hook) }) {
			if _, ok := held[r]; !ok {
				held[r] = now
			}
			if now.Sub(held[r]) < entriesWait {
				waiting[r] = true
				continue
			}
		}
		ready = append(ready, r)
	}
	maps.DeleteFunc(held, func(r service.Ready, _ time.Time) bool { return !waiting[r] && !slices.Contains(ready, r) })
	return ready
}
