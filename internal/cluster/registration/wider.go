package registration

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// WiderEntry is an entry that fails closed and selects a namespace that hooks of it which fail closed do not select: their
// namespaceSelectors have no part in common that leaves it out. While the mesh is down the API server refuses requests for the entry.
type WiderEntry struct {
	// Name has the stage and the name, as in validate/fail-closed.
	Name string
	// Hooks are the fail-closed hooks of the entry that do not select the namespace, in the order of the snapshot. They belong to the snapshot.
	Hooks []*match.Hook

	atoms, failOpen atomSet
	wanted          atomSet // the requests that other fail-closed hooks cover, which select the namespace
	objects         *metav1.LabelSelector
}

// WiderEntries returns the entries of a cluster that are wider than their hooks about a namespace. hooks are all that serve the cluster,
// in the order of their snapshot. bypass is the cluster's, or nil. It plans as Plan does, by the versions that hooks name.
func WiderEntries(hooks []*match.Hook, bypass *match.Bypass, namespace string) []WiderEntry {
	name := labels.Set{corev1.LabelMetadataName: namespace}
	of := func(stage admissionv1.Stage) []*match.Hook {
		return keep(hooks, func(h *match.Hook) bool { return h.EntryStage() == stage })
	}
	validating, mutating := of(admissionv1.Stage_STAGE_VALIDATE), of(admissionv1.Stage_STAGE_MUTATE)
	again := keep(mutating, func(h *match.Hook) bool { return h.Reinvocation == admissionregistrationv1.IfNeededReinvocationPolicy })
	selecting := func(h *match.Hook) bool { return selects(h.EntryNamespaces(), name) }
	if closed, _ := partition(hooks); !slices.ContainsFunc(closed, func(h *match.Hook) bool { return !selecting(h) }) {
		return nil
	}
	p := planWithin(func(most int) (*planner, bool) {
		p := &planner{bypass: bypass, most: most}
		p.resolve(hooks)
		return p, !p.tooMany
	})
	var wider []WiderEntry
	for _, e := range slices.Concat(
		p.byRequest(admissionv1.Stage_STAGE_MUTATE, mutating), p.byRequest(admissionv1.Stage_STAGE_REINVOKE, again),
		p.byPolicy(admissionv1.Stage_STAGE_VALIDATE, validating),
	) {
		if e.name != match.EntryFailClosed || !selects(p.namespaceSelector(e.namespaces), name) {
			continue
		}
		closed, _ := partition(e.hooks)
		if others := keep(closed, func(h *match.Hook) bool { return !selecting(h) }); len(others) > 0 {
			wider = append(wider, WiderEntry{
				Name: match.StageName(e.stage) + "/" + e.name, Hooks: others,
				atoms: newAtomSet(e.atoms), wanted: p.covered(keep(closed, selecting)), failOpen: newAtomSet(atoms(e.failOpen)), objects: objectSelector(e.hooks),
			})
		}
	}
	return wider
}

// Brings reports whether the entry brings a request of the namespace that none of its fail-closed hooks selects. It is about an object
// without labels. resource has its subresource, as in pods/status. Conditions of the entry do not count.
func (e *WiderEntry) Brings(operation admissionregistrationv1.OperationType, group, version, resource string) bool {
	a := atom{}
	a[dimGroup], a[dimVersion], a[dimResource] = group, version, resource
	a[dimScope], a[dimOperation] = string(admissionregistrationv1.NamespacedScope), string(operation)
	return e.atoms.covers(a) && !e.wanted.covers(a) && !e.failOpen.covers(a) && selects(e.objects, labels.Set{})
}
