package match

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// maxExplainedRules bounds how many rules of one hook Explain goes through in its text.
const maxExplainedRules = 8

// Skipped is a hook that is not called, and why.
type Skipped struct {
	// Hook is the hook.
	Hook *Hook
	// Skip is the reason, one of the Skip constants; empty when Matches refuses the review.
	Skip string
	// Reason is the same for a person.
	Reason string
}

// Explain lists every hook of the stage that would not be called for the request, in order, and why. It looks at all
// hooks: it is for people, not for the road of a review.
func (s *Snapshot) Explain(
	ctx context.Context, cluster string, stage admissionv1.Stage, a *Attributes,
) []Skipped {
	var skipped []Skipped
	for _, h := range s.hooks {
		if !slices.Contains(h.stages(), stage) {
			continue
		}
		if skip, reason := h.explain(ctx, cluster, a); reason != "" {
			skipped = append(skipped, Skipped{Hook: h, Skip: skip, Reason: reason})
		}
	}
	return skipped
}

// explain returns no reason for a hook that would be called.
func (h *Hook) explain(ctx context.Context, cluster string, a *Attributes) (skip, reason string) {
	switch {
	case a.Exempt():
		return SkipExempt, fmt.Sprintf("requests about %s are never sent to hooks", a.original.Resource.GroupResource())
	case !h.Serves(cluster):
		return SkipCluster, h.explainCluster(cluster)
	case !h.covers(a):
		// Kubernetes looks at the selectors first; whoever asks why wants to know about the rules first.
		return SkipRules, h.explainRules(a)
	}
	switch d := h.Matches(ctx, a); d.Skip {
	case SkipNamespaceSelector:
		return d.Skip, h.explainNamespace(ctx, a)
	case SkipObjectSelector:
		return d.Skip, fmt.Sprintf("objectSelector %q matches neither the object nor the old one", h.objectSelector)
	case SkipConditions:
		return d.Skip, explainCondition(d.condition)
	default:
		if d.Err != nil {
			return "", "the review is refused: " + d.Err.Error()
		}
		return "", ""
	}
}

func (h *Hook) explainCluster(cluster string) string {
	if h.ID.Scope != "" && h.ID.Scope != cluster {
		return fmt.Sprintf("its configuration is for cluster %q", h.ID.Scope)
	}
	return fmt.Sprintf("its route is for clusters %q", h.Route.Clusters)
}

func (h *Hook) explainRules(a *Attributes) string {
	var text strings.Builder
	fmt.Fprintf(&text, "no rule covers %s of %s", a.req.GetOperation(), resourceName(a))
	for i := range h.rules {
		if i == maxExplainedRules {
			fmt.Fprintf(&text, ", and %d more", len(h.rules)-i)
			break
		}
		fmt.Fprintf(&text, "; rules[%d] does not by its %s", i, mismatch(&h.rules[i], a.request, a.original.Resource))
	}
	return text.String()
}

func (h *Hook) explainNamespace(ctx context.Context, a *Attributes) string {
	set, err := a.namespaceLabels(ctx)
	if err != nil { // it was read a moment ago
		return fmt.Sprintf("namespaceSelector %q does not match", h.namespaceSelector)
	}
	return fmt.Sprintf("namespaceSelector %q does not match the labels %q of namespace %q",
		h.namespaceSelector, set, a.req.GetNamespace())
}

func explainCondition(name string) string {
	if name == "" {
		return "a matchCondition failed to evaluate, and failurePolicy Ignore leaves the hook out"
	}
	return fmt.Sprintf("matchCondition %q is false", name)
}

// resourceName is what the client asked for, as rules write it: group/version, resource/subresource.
func resourceName(a *Attributes) string {
	name := a.original.Resource.GroupVersion().String() + " " + a.original.Resource.Resource
	if sub := a.req.GetSubResource(); sub != "" {
		name += "/" + sub
	}
	return name
}
