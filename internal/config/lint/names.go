package lint

import (
	"cmp"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// namesakes are the hooks of one stage and name that were seen.
type namesakes struct {
	first *match.Hook            // of all
	every *match.Hook            // the first that every cluster has
	in    map[string]*match.Hook // the first that each cluster has, if some have it
}

// sameNames finds hooks that have the name of an earlier one which the same requests may meet. Denials go by the name
// alone, and so do hosts. A policy has no hosts, and its verdict names its kind too.
func sameNames(hooks []*match.Hook, about func(*match.Hook) bool) []match.Finding {
	type key struct {
		stage admissionv1.Stage
		name  string
	}
	byName := map[key]*namesakes{}
	var findings []match.Finding
	for _, h := range hooks {
		if h.Policy != nil {
			continue
		}
		k := key{h.ID.Stage, h.ID.Name}
		if byName[k] == nil {
			byName[k] = &namesakes{in: map[string]*match.Hook{}}
		}
		if other := byName[k].meeting(h); other != nil && (about(h) || about(other)) {
			findings = append(findings, warning(CodeSameName, h.Path(".name"), "%q is the name of %s too, and %s by the name alone: nothing tells "+
				"which of the two is meant; give one of them another name", h.ID.Name, other.Path(""), goBy(h)))
		}
		byName[k].add(h)
	}
	return findings
}

// goBy says for which purpose clients know a hook by its name alone.
func goBy(h *match.Hook) string {
	if h.Initializes() {
		return "the list of pending initializers goes"
	}
	return "denials and hosts go"
}

// meeting is a hook that shares a cluster with h; nil when there is none.
func (n *namesakes) meeting(h *match.Hook) *match.Hook {
	if len(h.Route.Clusters) == 0 {
		return n.first
	}
	for _, cluster := range h.Route.Clusters {
		if n.in[cluster] != nil {
			return n.in[cluster]
		}
	}
	return n.every
}

func (n *namesakes) add(h *match.Hook) {
	n.first = cmp.Or(n.first, h)
	if len(h.Route.Clusters) == 0 && n.every == nil {
		n.every = h
	}
	for _, cluster := range h.Route.Clusters {
		if n.in[cluster] == nil {
			n.in[cluster] = h
		}
	}
}
