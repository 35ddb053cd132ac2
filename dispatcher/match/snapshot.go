// Package match decides which hooks a review is sent to. Compile turns webhook configurations into an immutable Snapshot with an index;
// Snapshot.Candidates finds the hooks whose rules cover a request at a cost that does not grow with the hooks whose rules do not; Hook.ShouldCall
// evaluates selectors and matchConditions, in kube-apiserver's order and with its error rules.
//
// The specification is ShouldCallHook in k8s.io/apiserver/pkg/admission/plugin/webhook/generic, and the tests ask it. The package does no I/O, keeps
// no state of its own and starts nothing. Everything in it may be used from any number of goroutines.
package match

import (
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Snapshot is a compiled configuration at one revision. It is immutable.
type Snapshot struct {
	revision string
	hooks    []*Hook
	index    index
	bypasses map[string]*Bypass // by cluster
	// objects are the results of all objects, for the next snapshot.
	objects map[objectKey]*compiled
}

// Revision is the digest that the snapshot was compiled for.
func (s *Snapshot) Revision() string { return s.revision }

// Hooks are all hooks of all stages and clusters, in the order in which Kubernetes calls them: by name of the
// configuration, then by position (SEMANTICS C1). Initializers come first, and routes may order them otherwise. The caller must not write to the slice.
func (s *Snapshot) Hooks() []*Hook { return s.hooks }

// Ordinal is the position of the hook in [Snapshot.Hooks].
func (h *Hook) Ordinal() int { return h.ordinal }

// Candidates are the hooks of the stage whose rules cover the request, in order. It is empty for requests that hooks never see (SEMANTICS C19). For
// STAGE_REINVOKE they are the mutating hooks with reinvocationPolicy IfNeeded. Selectors and conditions are not looked at: ask Hook.ShouldCall. The
// slice belongs to the caller.
//
// Hooks with matchPolicy Equivalent are among them if their rules cover an equivalent. If the cluster does not know the equivalents or their kinds,
// such hooks are candidates too, and Hook.ShouldCall refuses the review.
func (s *Snapshot) Candidates(cluster string, stage admissionv1.Stage, a *Attributes) []*Hook {
	if a.Exempt() {
		return nil
	}
	found := s.index.lookup(cluster, stage, a)
	matching := found[:0]
	for _, h := range found {
		if !h.Serves(cluster) { // the index may have filed it for all clusters
			continue
		}
		if _, ok, err := h.covers(a.request); ok || err != nil {
			matching = append(matching, h)
		}
	}
	return matching
}
