package keeper

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
)

// State is the state of the entries of a cluster as this dispatcher sees it.
type State struct {
	// Cluster names it.
	Cluster string
	// Digest is the revision of the configuration that the entries were compared with last; empty before the first time.
	Digest string
	// InSync is whether the entries matched Digest, perhaps since this dispatcher wrote them.
	InSync bool
	// Leads is whether this dispatcher writes them.
	Leads bool
	// Err is the error of the last attempt to compare and write them; nil without one.
	Err error
	// At is the end of that attempt.
	At time.Time
	// Wider are warnings about entries that bring more requests than planned, since the API server drops matchConditions.
	Wider []string

	planned planned
	lacking []*match.Hook // of the configuration that they were compared with last
}

// Behind is a cluster whose entries are not known to match a configuration, or an API server of it may still call by others.
type Behind struct {
	// Cluster names it.
	Cluster string
	// Why is the reason.
	Why string
	// Failed is whether the last attempt to compare and write the entries has failed.
	Failed bool
	// Unread is whether nothing is known of the entries.
	Unread bool
	// Lacking are the hooks of the configuration whose requests the entries may not bring: some or all requests of these hooks pass the
	// cluster without their judgement. A hook is named until each API server of the cluster calls by entries that were made from it as it is
	// now: an API server can miss a change of entries until they are written once more (package touch).
	Lacking []*match.Hook
}

// Brings reports whether the entries are known to bring the requests of a hook.
func (b *Behind) Brings(h *match.Hook) bool {
	if !h.Serves(b.Cluster) {
		return true
	}
	return !b.Unread && !slices.ContainsFunc(b.Lacking, func(l *match.Hook) bool { return l.ID == h.ID })
}

// OutOfSync are the clusters whose entries are not in sync with a configuration, of those that are kept: first the clusters whose entries are
// about to be written, each by name. The snapshot may be nil.
func OutOfSync(kept []string, known []State, s *match.Snapshot, digest string) (all []Behind) {
	states := make(map[string]State, len(known))
	for _, state := range known {
		states[state.Cluster] = state
	}
	for _, cluster := range kept {
		state := states[cluster] // the zero State was not compared
		b := Behind{Cluster: cluster, Why: state.behind(digest), Failed: state.Err != nil, Unread: !state.planned.read}
		if !b.Unread && s != nil {
			b.Lacking = state.lackingOf(s)
		}
		if b.Why == "" && len(b.Lacking) > 0 {
			b.Why = fmt.Sprintf("they are written, and written once more %v later, since an API server can miss a change", touch.Delay)
		}
		if b.Why != "" {
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b Behind) int {
		if a.Failed != b.Failed {
			if b.Failed {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Cluster, b.Cluster)
	})
	return all
}

// behind returns why the entries may not match a configuration with a digest; empty if they match.
func (s *State) behind(digest string) string {
	switch {
	case s.Err != nil:
		return s.Err.Error()
	case s.Digest != digest:
		return "they were not compared with this configuration yet"
	case !s.InSync:
		return "the dispatcher that writes them has not done so yet"
	}
	return ""
}

func (s *State) lackingOf(of *match.Snapshot) []*match.Hook {
	if of.Revision() == s.Digest {
		return s.lacking
	}
	return s.planned.lacking(of, s.Cluster)
}
