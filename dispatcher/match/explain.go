package match

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// maxExplainedRules bounds how many rules of one hook Explain goes through in its text.
const maxExplainedRules = 8

// Skipped is a hook that is not called, and why.
type Skipped struct {
	// Hook is the hook.
	Hook *Hook
	// Skip is the reason, a Skip constant; empty when ShouldCall refuses the review.
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
	policies := map[string]bool{} // a policy that differs by cluster has several hooks: one is enough here
	for _, h := range s.hooks {
		if h.Policy != nil && h.Serves(cluster) {
			policies[h.ID.Configuration] = true
		}
	}
	for _, h := range s.hooks {
		if !slices.Contains(h.stages(), stage) {
			continue
		}
		if h.Policy != nil && !h.Serves(cluster) {
			if policies[h.ID.Configuration] {
				continue
			}
			policies[h.ID.Configuration] = true
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
		return SkipExempt, fmt.Sprintf("requests about %s are never sent to hooks", a.requested.Resource.GroupResource())
	case !h.Serves(cluster):
		return SkipCluster, h.explainCluster(cluster)
	}
	// Kubernetes looks at the selectors first; for a person the rules come first.
	if _, ok, err := h.covers(a.request); !ok && err == nil {
		return SkipRules, h.explainRules(a)
	}
	switch d := h.ShouldCall(ctx, a); d.Skip {
	case SkipNamespaceSelector:
		return d.Skip, h.explainNamespace(ctx, a)
	case SkipObjectSelector:
		return d.Skip, fmt.Sprintf("objectSelector %q matches neither the object nor the old one", h.objectSelector)
	case SkipConditions:
		return d.Skip, h.explainCondition(d)
	case SkipPending:
		return d.Skip, "it is pending: no host has answered its probe yet"
	case SkipDryRun, SkipMirrorPod, SkipOwnPod, SkipSecret, SkipShadow:
		return d.Skip, explainInitializer(d.Skip)
	default:
		switch {
		case d.Err == nil:
			return "", ""
		case h.Route.Shadow:
			return "", "it is in shadow, and cannot be matched: " + d.Err.Error()
		}
		return "", "the review is refused: " + d.Err.Error()
	}
}

func (h *Hook) explainCluster(cluster string) string {
	if h.ID.Scope != "" && h.ID.Scope != cluster {
		return fmt.Sprintf("its configuration is for cluster %q", h.ID.Scope)
	}
	if slices.Contains(h.Except, cluster) {
		return "it is for other clusters than " + cluster
	}
	return fmt.Sprintf("its route is for clusters %q", h.Route.Clusters)
}

func (h *Hook) explainRules(a *Attributes) string {
	var text strings.Builder
	fmt.Fprintf(&text, "no rule covers %s of %s", a.req.GetOperation(), resourceName(a.requested))
	for i := range h.rules {
		if i == maxExplainedRules {
			fmt.Fprintf(&text, ", and %d more", len(h.rules)-i)
			break
		}
		fmt.Fprintf(&text, "; rules[%d] does not by its %s", i, h.mismatch(i, a.request, a.requested.Resource))
	}
	if asked := a.requested.Resource; NamedOnly(asked.Group, asked.Resource) {
		fmt.Fprintf(&text, "; wildcards do not cover %s, a rule has to name it", asked.Resource)
	}
	h.explainEquivalents(&text, a)
	return text.String()
}

// explainEquivalents says which equivalents of the resource the rules of the hook cover, and whether that counts.
func (h *Hook) explainEquivalents(text *strings.Builder, a *Attributes) {
	equivalents, err := a.versions()
	if err != nil { // a hook that depends on them refuses the review, and does not come here
		return
	}
	if equivalent := h.equivalent(a.request, equivalents); equivalent != nil {
		fmt.Fprintf(text, "; the rules cover the equivalent %s, but matchPolicy is %s", resourceName(equivalent), h.MatchPolicy)
		return
	}
	if h.MatchPolicy != admissionregistrationv1.Equivalent {
		return
	}
	separator := "; nor does any cover the equivalent "
	for i := range equivalents {
		if equivalents[i].Resource != a.requested.Resource {
			text.WriteString(separator + resourceName(&equivalents[i]))
			separator = ", "
		}
	}
}

func (h *Hook) explainNamespace(ctx context.Context, a *Attributes) string {
	set, err := a.namespaceLabels(ctx)
	if err != nil { // it was read a moment ago
		return fmt.Sprintf("namespaceSelector %q does not match", h.namespaceSelector)
	}
	return fmt.Sprintf("namespaceSelector %q does not match the labels %q of namespace %q",
		h.namespaceSelector, set, a.req.GetNamespace())
}

func (h *Hook) explainCondition(d Decision) string {
	seen := ""
	if d.As != nil {
		seen = fmt.Sprintf(" for %s %s", d.As.Kind.GroupVersion(), d.As.Kind.Kind)
	}
	switch {
	case d.condition == "" && h.FailsClosed():
		return fmt.Sprintf("a matchCondition failed to evaluate%s, and writes of the resource always fail open in this cluster", seen)
	case d.condition == "":
		return fmt.Sprintf("a matchCondition failed to evaluate%s, and failurePolicy Ignore leaves the hook out", seen)
	}
	return fmt.Sprintf("matchCondition %q is false%s", d.condition, seen)
}

// resourceName is a resource as rules write it: group/version, resource/subresource.
func resourceName(r *conversion.ResourceKind) string {
	name := r.Resource.GroupVersion().String() + " " + r.Resource.Resource
	if r.Subresource != "" {
		name += "/" + r.Subresource
	}
	return name
}
