package match

import (
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// Backwards returns a snapshot in which the mutating policies, and the mutating hooks, are called in the opposite order. It is for tools that look for
// hooks whose result depends on the order.
func (s *Snapshot) Backwards() *Snapshot {
	var hooks []*Hook
	for _, h := range s.hooks {
		copied := *h
		hooks = append(hooks, &copied)
	}
	for _, policies := range []bool{true, false} {
		var places []int
		for i, h := range hooks {
			if h.ID.Stage == admissionv1.Stage_STAGE_MUTATE && (h.Policy != nil) == policies {
				places = append(places, i)
			}
		}
		for len(places) > 1 {
			first, last := places[0], places[len(places)-1]
			hooks[first], hooks[last] = hooks[last], hooks[first]
			places = places[1 : len(places)-1]
		}
	}
	for i, h := range hooks {
		h.ordinal = i
	}
	return &Snapshot{revision: s.revision, hooks: hooks, index: newIndex(hooks), objects: s.objects, bypasses: s.bypasses}
}
