package serve

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/config/service"
	"github.com/portcullis-mesh/portcullis/dispatcher/session"
	"github.com/portcullis-mesh/portcullis/internal/cli/printer"
)

const (
	// rotateInterval is how often it is looked for hooks whose hosts are ready, beside when one says so: what went wrong is
	// tried again.
	rotateInterval = time.Second
	// rotateTimeout bounds one try.
	rotateTimeout = 5 * time.Second
	// maxPendingTold and maxPendingMessage bound what a dispatcher tells of hooks that are pending: their number, and the bytes
	// of what a host says.
	maxPendingTold    = 64
	maxPendingMessage = 256
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

// readyHooks are the pending hooks that a host has said to be ready.
func readyHooks(all []session.Pending) []service.Ready {
	var out []service.Ready
	for _, p := range all {
		if p.Ready {
			out = append(out, service.Ready{Key: config.KeyOf(p.Hook), Hook: p.Hook.ID.Name, Host: p.Host})
		}
	}
	return out
}

// saying is what a host says, for people, within bounds.
func saying(message string) string {
	message = printer.Text(message)
	return strings.ToValidUTF8(message[:min(len(message), maxPendingMessage)], "")
}

// pendingHooks is what the other dispatchers are told of the hooks that are pending.
func pendingHooks(all []session.Pending) []etcdstore.PendingHook {
	var out []etcdstore.PendingHook
	for _, p := range all[:min(len(all), maxPendingTold)] {
		x := etcdstore.PendingHook{Object: config.KeyOf(p.Hook).String(), Hook: p.Hook.ID.Name}
		switch {
		case p.Ready:
			x.Reason, x.Message = etcdstore.PendingReady, p.Host+" is ready, and the store is about to be told"
		case p.Host != "":
			x.Reason, x.Message = etcdstore.PendingNotReady, fmt.Sprintf("%s is not ready: %s", p.Host, saying(p.Message))
		case p.Hosts > 0:
			x.Reason, x.Message = etcdstore.PendingUnanswered, "the host has not answered yet"
		case len(p.Hook.Route.Hosts) == 0:
			x.Reason, x.Message = etcdstore.PendingNobody, "name the identities of its hosts in spec.hosts of a HookRoute"
		default:
			x.Reason, x.Message = etcdstore.PendingMissing, "no host that may serve it is connected"
		}
		out = append(out, x)
	}
	return out
}
