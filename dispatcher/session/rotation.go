package session

import (
	"cmp"
	"slices"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Pending is a hook that is not in rotation yet, and the state of its hosts.
type Pending struct {
	// Hook is the hook.
	Hook *match.Hook
	// Hosts is how many sessions serve it.
	Hosts int
	// Host is the identity of the host that has answered the probe of the hook; empty when none has that is still there. A
	// host that is ready comes before a host that is not.
	Host string
	// Ready is whether it is ready, and Message why not, at most stream.MaxReasonBytes.
	Ready   bool
	Message string
}

// Pending returns the hooks that are not in rotation yet, in the order of the configuration. The owner of the configuration puts ready hooks into
// rotation; hosts are asked until the snapshot has them there.
func (r *Router) Pending() []Pending {
	v := r.hooks.Load()
	out := make([]Pending, 0, len(v.pending))
	for p, h := range v.pending {
		out = append(out, *pendingOf(p, h))
	}
	slices.SortFunc(out, func(a, b Pending) int { return cmp.Compare(a.Hook.Ordinal(), b.Hook.Ordinal()) })
	return out
}

// Readied receives after a host has answered that a pending hook is ready. Answers that come before it is read count as one.
func (r *Router) Readied() <-chan struct{} { return r.readied }
