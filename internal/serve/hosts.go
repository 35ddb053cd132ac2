package serve

import (
	"cmp"
	"slices"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/config/service"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// maxUnservedTold bounds the hooks without a host that a dispatcher names to the others; the rest is counted.
const maxUnservedTold = 64

func (a *app) hookHosts() []service.HookHosts {
	all := a.registry.HookHosts()
	out := make([]service.HookHosts, len(all))
	for i, h := range all {
		out[i] = service.HookHosts(h)
	}
	return out
}

// unservedHooks is what the other dispatchers are told of hooks without a host: those that refuse requests first.
func unservedHooks(all []*match.Hook) (told []etcdstore.HookName, more int) {
	slices.SortStableFunc(all, func(a, b *match.Hook) int { return cmp.Compare(rank(a), rank(b)) })
	for _, h := range all[:min(len(all), maxUnservedTold)] {
		told = append(told, etcdstore.HookName{Object: config.KeyOf(h).String(), Hook: h.ID.Name})
	}
	return told, len(all) - len(told)
}

func rank(h *match.Hook) int {
	if h.FailsClosed() {
		return 0
	}
	return 1
}
