package lint

import "github.com/portcullis-mesh/portcullis/dispatcher/match"

// bypassed knows the clusters in which no failure refuses a write, since the entries have the bypass of the cluster too.
type bypassed struct {
	snapshot *match.Snapshot
	declared int
	open     map[*match.Attributes]map[string]bool // clusters, by write
}

func newBypassed(s *match.Snapshot) *bypassed {
	b := &bypassed{snapshot: s, open: map[*match.Attributes]map[string]bool{}}
	for range s.Bypasses() {
		b.declared++
	}
	return b
}

// opens reports whether each cluster of a hook lets a write pass: all declared clusters, if the hook is for all.
func (b *bypassed) opens(h *match.Hook, a *match.Attributes) bool {
	open := b.clusters(a)
	for _, cluster := range clustersOf(h) {
		if !open[cluster] {
			return false
		}
	}
	return len(open) > 0 && (len(clustersOf(h)) > 0 || len(open) == b.declared)
}

func (b *bypassed) clusters(a *match.Attributes) map[string]bool {
	if open, known := b.open[a]; known {
		return open
	}
	open := map[string]bool{}
	for cluster, bypass := range b.snapshot.Bypasses() {
		if bypass.Opens(a) {
			open[cluster] = true
		}
	}
	b.open[a] = open
	return open
}
