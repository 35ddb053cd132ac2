package match

import (
	"context"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Skipped is a hook that is not called, and why.
type Skipped struct {
	// Hook is the hook.
	Hook *Hook
	// Reason is for a person.
	Reason string
}

// Explain lists every hook of the stage that would not be called for the request, in order, and why. It looks at all
// hooks: it is for people, not for the road of a review.
func (s *Snapshot) Explain(
	ctx context.Context, cluster string, stage admissionv1.Stage, a *Attributes, ns NamespaceLabels,
) []Skipped {
	var skipped []Skipped
	for _, h := range s.hooks {
		if h.ID.Stage != stage {
			continue
		}
		if !h.serves(cluster) {
			skipped = append(skipped, Skipped{h, SkipCluster})
		} else if d := h.Matches(ctx, a, ns); !d.Match && d.Err == nil {
			skipped = append(skipped, Skipped{h, d.Skip})
		}
	}
	return skipped
}
