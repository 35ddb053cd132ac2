package match

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// Reasons for which a hook is not called. They are metric labels: the set is closed.
const (
	// SkipRules: no rule covers the request.
	SkipRules = "rules"
	// SkipNamespaceSelector: namespaceSelector does not match the labels of the namespace.
	SkipNamespaceSelector = "namespaceSelector"
	// SkipObjectSelector: objectSelector matches neither the object nor the old one.
	SkipObjectSelector = "objectSelector"
	// SkipExcluded: an excludeResourceRule of a policy covers the request.
	SkipExcluded = "excludeResourceRules"
	// SkipConditions: a matchCondition is false, or failed to evaluate for a hook with failurePolicy Ignore or a request that always
	// fails open.
	SkipConditions = "matchConditions"
	// SkipBindings: no binding of a policy meets the request.
	SkipBindings = "bindings"
	// SkipParams: the bindings of a policy that meet the request have no params, and their parameterNotFoundAction is Allow.
	SkipParams = "params"
	// SkipCluster: the hook does not see reviews of this cluster.
	SkipCluster = "cluster"
	// SkipPending: no host has answered the probe of the hook yet.
	SkipPending = "pending"
	// SkipDryRun: an initializer is not called in a dry run: nothing is staged.
	SkipDryRun = "dryRun"
	// SkipMirrorPod: an initializer is not called for a Pod that mirrors a static Pod of a node (SEMANTICS C49).
	SkipMirrorPod = "mirrorPod"
	// SkipOwnPod: an initializer is not called for a Pod of its own hosts, which could not start without themselves.
	SkipOwnPod = "ownPod"
	// SkipSecret: an initializer is called for Secrets only if a rule names them.
	SkipSecret = "secret"
	// SkipShadow: an initializer in shadow is called only if hosts serve it over streams.
	SkipShadow = "shadow"
	// SkipInitialized: the client has asked for the object to be created as it is, and may.
	SkipInitialized = "initialized"
	// SkipExempt: no hook ever sees requests of this kind.
	SkipExempt = "exempt"
)

// Decision is whether a hook is called: exactly one field among Match, Skip and Err is set.
type Decision struct {
	// Match is true when the hook is to be called.
	Match bool
	// As is how the hook sees the request: in the version that its rules name. It is nil when that is the version in which
	// the object was sent, and has a meaning only with Match and SkipConditions. It belongs to the attributes and must not be
	// changed.
	As *conversion.ResourceKind
	// Skip is the reason that the hook is not called: a Skip constant.
	Skip string
	// Err refuses the whole review with its status, whatever the failure policy (SEMANTICS C12).
	Err *apierrors.StatusError
	// Unmatched is why it is not known whether a policy applies: with Match, the policy gives its verdict about that ([Policy]).
	Unmatched error

	condition string // the matchCondition that is false, when Skip is SkipConditions
}

// ShouldCall decides whether the hook is called, as ShouldCallHook of kube-apiserver does (SEMANTICS C12): selectors,
// rules, only then the selectors' errors, and conditions last. ctx bounds the look-up of the namespace and the
// evaluation of conditions. A pending hook is not looked at any further: no review waits for it, or is refused for it.
func (h *Hook) ShouldCall(ctx context.Context, a *Attributes) Decision {
	if h.Pending {
		return Decision{Skip: SkipPending}
	}
	return h.Matches(ctx, a)
}

// Matches is ShouldCall of a hook that is not pending, or will not be.
func (h *Hook) Matches(ctx context.Context, a *Attributes) Decision {
	d := h.MatchesWithoutConditions(ctx, a)
	if d.Err != nil && h.Policy != nil {
		return Decision{Match: true, Unmatched: d.Err}
	}
	if !d.Match {
		return d
	}
	if h.Initializes() {
		return h.matchInitializer(a, d)
	}
	return h.matchConditions(ctx, a, d.As)
}

// MatchesWithoutConditions is Matches by selectors and rules alone: matchConditions are the mesh's own, and the entries of a cluster do not
// have them.
func (h *Hook) MatchesWithoutConditions(ctx context.Context, a *Attributes) Decision {
	equivalent, skip, err := h.Match(ctx, a)
	if err != nil || skip != "" {
		return Decision{Skip: skip, Err: err}
	}
	as, err := h.sees(ctx, a, equivalent)
	if err != nil {
		return Decision{Err: err}
	}
	return Decision{Match: true, As: as}
}

// Brought decides whether an API server sends a request for the hook to the mesh, or refuses it without asking, as far as the entries of clusters can tell by
// selectors and rules.
func (h *Hook) Brought(ctx context.Context, a *Attributes) bool {
	d := h.MatchesWithoutConditions(ctx, a)
	if d.Err != nil || !d.Match {
		return d.Err != nil
	}
	entry := Criteria{namespaceSelector: h.entryNamespaces}
	selected, err := entry.matchNamespace(ctx, a)
	return selected || err != nil
}

// sees is the version in which the hook sees the request that its rules cover as equivalent; nil for the version that was sent.
//
// If the API server has converted the objects for the entry that led here, equivalent may be their version before. kube-apiserver would not have to
// convert them back. If that conversion is impossible, a hook whose rules name the sent version sees the sent version. Any other hook would be left
// out, or get a version that it never asked for. The configuration allows neither: the review is refused, as for every object that cannot be
// converted.
func (h *Hook) sees(ctx context.Context, a *Attributes, equivalent *conversion.ResourceKind) (*conversion.ResourceKind, *apierrors.StatusError) {
	if a.isSent(*equivalent) {
		return nil, nil
	}
	if !a.converted() {
		return equivalent, nil
	}
	_, _, err := a.In(ctx, equivalent)
	switch {
	case err == nil:
		return equivalent, nil
	case h.coversResource(a.request, a.sent.Resource):
		return nil, nil
	}
	return nil, apierrors.NewInternalError(fmt.Errorf(
		"hook %q takes %s, but the API server sent %s, which cannot be converted back: %w: let the entry name the same versions as its hooks",
		h.ID.Name, equivalent.Resource, a.sent.Resource, err))
}
