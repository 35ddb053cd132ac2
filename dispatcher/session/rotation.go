package session

import (
	"cmp"
	"slices"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Pending is a hook that is not in rotation yet, and what is known of the hosts that serve it.
type Pending struct {
	// Hook is the hook.
	Hook *match.Hook
	// Hosts is how many sessions serve it.
	Hosts int
	// Host is the identity of the host that has answered the probe of the hook; empty when none has that is still there. That
	// of one which is ready comes before that of one which is not.
	Host string
	// Ready is whether it is ready, and Message why not, at most stream.MaxReasonBytes.
	Ready   bool
	Message string
}

// Pending are the hooks that are not in rotation yet, in the order of the configuration. Whoever keeps that puts those in
// rotation that are ready; hosts are asked until the snapshot says so.
func (r *Registry) Pending() []Pending {
	v := r.hooks.Load()
	out := make([]Pending, 0, len(v.pending))
	for p, h := range v.pending {
		x := Pending{Hook: h, Hosts: p.Size()}
		if c := p.Report(); c != nil {
			x.Host, x.Ready, x.Message = c.Replica.Peer.Name(), c.Ready, c.Message
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b Pending) int { return cmp.Compare(a.Hook.Ordinal(), b.Hook.Ordinal()) })
	return out
}

// Readied tells that a host has said of a pending hook that it is ready. It is told once for all that have said so since.
func (r *Registry) Readied() <-chan struct{} { return r.readied }
