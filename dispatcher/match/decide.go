package match

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

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
	// SkipConditions: a matchCondition is false, or failed to evaluate for a hook with failurePolicy Ignore.
	SkipConditions = "matchConditions"
	// SkipCluster: the hook does not see reviews of this cluster.
	SkipCluster = "cluster"
	// SkipExempt: no hook ever sees requests of this kind.
	SkipExempt = "exempt"
)

// Decision is whether a hook is called: exactly one of Match, Skip and Err is set.
type Decision struct {
	// Match is true when the hook is to be called.
	Match bool
	// As is how the hook, which is to be called, sees the request: in the version that its rules name. It is nil when that
	// is the version in which the object came.
	As *conversion.ResourceKind
	// Skip is the reason for which it is not, one of the Skip constants.
	Skip string
	// Err refuses the whole review with its status, whatever the failure policy (SEMANTICS C12).
	Err *apierrors.StatusError

	condition string // the matchCondition that is false, when Skip is SkipConditions
}

// Matches decides whether the hook is called, as ShouldCallHook of kube-apiserver does (SEMANTICS C12): selectors,
// rules, only then the selectors' errors, and conditions last. ctx bounds the look-up of the namespace and the
// evaluation of conditions.
func (h *Hook) Matches(ctx context.Context, a *Attributes) Decision {
	inNamespace, nsErr := h.matchNamespace(ctx, a)
	if !inNamespace && nsErr == nil {
		return Decision{Skip: SkipNamespaceSelector}
	}
	selected, objErr := h.matchObject(a)
	if !selected && objErr == nil {
		return Decision{Skip: SkipObjectSelector}
	}
	switch {
	case !h.covers(a):
		return Decision{Skip: SkipRules}
	case nsErr != nil:
		return Decision{Err: nsErr}
	case objErr != nil:
		return Decision{Err: objErr}
	case !h.understands(a):
		return Decision{Err: errConversion(h, a)}
	}
	return h.matchConditions(ctx, a, nil)
}

// understands reports whether the object is in a version that the rules of the hook name. It is not if the client asked
// for one that they name and the API server converted the object for the entry that led here: kube-apiserver would
// convert it back.
func (h *Hook) understands(a *Attributes) bool {
	return !a.converted() || h.coversResource(a.request, a.came.Resource)
}

// errConversion refuses a review as kube-apiserver does when an object cannot be converted: neither leaving the hook
// out nor sending it a version that it never asked for would be what was configured.
func errConversion(h *Hook, a *Attributes) *apierrors.StatusError {
	return apierrors.NewInternalError(fmt.Errorf(
		"hook %q takes %s, which the client asked for, but the API server sent %s: let the entry name the same versions as its hooks",
		h.ID.Name, a.original.Resource, a.came.Resource))
}

// selector is a label selector, or the error that evaluating it yields.
type selector struct {
	labels.Selector
	source *metav1.LabelSelector // as written; nil when absent
	err    error
}

// matchNamespace is MatchNamespaceSelector of k8s.io/apiserver's predicates/namespace (SEMANTICS C16).
func (h *Hook) matchNamespace(ctx context.Context, a *Attributes) (bool, *apierrors.StatusError) {
	isNamespace := a.original.Resource.Resource == "namespaces"
	if a.req.GetNamespace() == "" && !isNamespace {
		return true, nil
	}
	if err := h.namespaceSelector.err; err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if h.namespaceSelector.Empty() {
		return true, nil
	}
	set, err := a.namespaceLabels(ctx)
	if err != nil {
		return false, namespaceError(err)
	}
	return h.namespaceSelector.Matches(set), nil
}

// matchObject is MatchObjectSelector of k8s.io/apiserver's predicates/object (SEMANTICS C17).
func (h *Hook) matchObject(a *Attributes) (bool, *apierrors.StatusError) {
	if err := h.objectSelector.err; err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if h.objectSelector.Empty() {
		return true, nil
	}
	for _, o := range [...]*object{a.object, a.old} {
		set, ok, err := o.labelSet(a.operation)
		if err != nil {
			return false, apierrors.NewBadRequest(err.Error())
		}
		if ok && h.objectSelector.Matches(set) {
			return true, nil
		}
	}
	return false, nil
}
