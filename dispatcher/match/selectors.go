package match

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// selector is a label selector, or the error that evaluating it yields.
type selector struct {
	labels.Selector
	source *metav1.LabelSelector // as written; nil when absent
	err    error
	byName bool // it asks for nothing but the label in which a namespace has its name
}

// newSelector compiles s. An absent selector selects everything, as the API's own default has it.
func newSelector(s *metav1.LabelSelector) selector {
	if s == nil {
		return selector{Selector: labels.Everything()}
	}
	parsed, err := metav1.LabelSelectorAsSelector(s)
	return selector{Selector: parsed, source: s, err: err, byName: err == nil && ByName(s)}
}

// and selects the labels that s and another selector, which may be nil, both select.
func (s *selector) and(other *metav1.LabelSelector) selector {
	switch {
	case other == nil || s.err != nil:
		return *s
	case s.Empty():
		return newSelector(other)
	}
	both := s.source.DeepCopy()
	for _, key := range slices.Sorted(maps.Keys(other.MatchLabels)) { // both may want a value of the same key
		both.MatchExpressions = append(both.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{other.MatchLabels[key]},
		})
	}
	both.MatchExpressions = append(both.MatchExpressions, other.MatchExpressions...)
	return newSelector(both)
}

// ByName reports whether a selector of namespaces tests their names alone: it can be evaluated without the cluster.
func ByName(s *metav1.LabelSelector) bool {
	other := func(key string) bool { return key != corev1.LabelMetadataName }
	for key := range s.MatchLabels {
		if other(key) {
			return false
		}
	}
	return !slices.ContainsFunc(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return other(r.Key) })
}

func (c *compiler) selectors(h *Hook, w *webhook, report report) {
	h.namespaceSelector = newSelector(w.NamespaceSelector)
	h.objectSelector = newSelector(w.ObjectSelector)
	const consequence = ": reviews that reach it are refused with 500"
	if err := h.namespaceSelector.err; err != nil {
		report(SeverityError, CodeSelector, ".namespaceSelector", err.Error()+consequence)
	}
	if err := h.objectSelector.err; err != nil {
		report(SeverityError, CodeSelector, ".objectSelector", err.Error()+consequence)
	}
}

// matchNamespace is MatchNamespaceSelector of k8s.io/apiserver's predicates/namespace (SEMANTICS C16), but that a selector by
// name alone is matched with the name in the request: the API server keeps the label on every namespace (docs/deviations.md, D12).
func (c *Criteria) matchNamespace(ctx context.Context, a *Attributes) (bool, *apierrors.StatusError) {
	isNamespace := a.requested.Resource.Resource == "namespaces"
	if a.req.GetNamespace() == "" && !isNamespace {
		return true, nil
	}
	if err := c.namespaceSelector.err; err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if c.namespaceSelector.Empty() {
		return true, nil
	}
	if c.namespaceSelector.byName && !isNamespace {
		return c.namespaceSelector.Matches((*nameLabel)(a.request)), nil
	}
	set, err := a.namespaceLabels(ctx)
	if err != nil {
		return false, namespaceError(err)
	}
	return c.namespaceSelector.Matches(set), nil
}

// nameLabel is the label in which the namespace of a request has its name, and no other.
type nameLabel request

// Lookup implements [labels.Labels].
func (n *nameLabel) Lookup(label string) (value string, exists bool) {
	return n.Get(label), n.Has(label)
}

// Has implements [labels.Labels].
func (n *nameLabel) Has(label string) bool { return label == corev1.LabelMetadataName }

// Get implements [labels.Labels].
func (n *nameLabel) Get(label string) string {
	if !n.Has(label) {
		return ""
	}
	return n.req.GetNamespace()
}

// matchObject is MatchObjectSelector of k8s.io/apiserver's predicates/object (SEMANTICS C17): the object or the old object has to match.
func (c *Criteria) matchObject(a *Attributes) (bool, *apierrors.StatusError) {
	if err := c.objectSelector.err; err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if c.objectSelector.Empty() {
		return true, nil
	}
	for _, o := range a.selectableObjects() {
		set, ok, err := o.labelSet(a.request)
		if err != nil {
			return false, cmp.Or(memoryStatus(err), apierrors.NewBadRequest(err.Error()))
		}
		if ok && c.objectSelector.Matches(set) {
			return true, nil
		}
	}
	return false, nil
}

// selectableObjects are the objects that an objectSelector looks at, nil where there is none: a CREATE has no old object, and a
// DELETE has that alone, so that it is selected by the labels of the object that goes.
func (a *Attributes) selectableObjects() [2]*object { return [2]*object{a.object, a.old} }

// namespaceLabels is GetNamespaceLabels of k8s.io/apiserver's predicates/namespace: a Namespace that is being written
// is selected by its new labels, everything else by the labels that its namespace has now (SEMANTICS C16).
func (a *Attributes) namespaceLabels(ctx context.Context) (labels.Set, error) {
	if a.writesNamespace() {
		set, ok, err := a.object.labelSet(a.request)
		if err == nil && !ok {
			err = errors.New("the request to write a namespace has no object")
		}
		return set, err
	}
	return a.cluster.NamespaceLabels(ctx, a.req.GetNamespace())
}

func (a *Attributes) writesNamespace() bool {
	return a.requested.Resource.Resource == "namespaces" && a.req.GetSubResource() == "" &&
		(a.operation == operationCreate || a.operation == operationUpdate)
}

// namespaceError is how a failed look-up refuses a review: 404 for a namespace that does not exist, else 500.
func namespaceError(err error) *apierrors.StatusError {
	var status apierrors.APIStatus
	if apierrors.IsNotFound(err) && errors.As(err, &status) {
		return &apierrors.StatusError{ErrStatus: status.Status()}
	}
	return cmp.Or(memoryStatus(err), apierrors.NewInternalError(err))
}
