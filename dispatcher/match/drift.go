package match

import (
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// EntryHooks are the hooks that the entries of a cluster are made from: validating ones first, since which of these an entry
// calls depends on its plan, which has room for MaxPlanHooks.
func (s *Snapshot) EntryHooks(cluster string) []*Hook {
	var validating, mutating []*Hook
	for _, h := range s.hooks {
		switch {
		case !h.Serves(cluster):
		case h.ID.Stage == admissionv1.Stage_STAGE_VALIDATE:
			validating = append(validating, h)
		default:
			mutating = append(mutating, h)
		}
	}
	return append(validating, mutating...)
}

// BroughtAs reports whether entries that were made from another hook bring the requests of this one. They may bring more.
func (h *Hook) BroughtAs(other *Hook) bool { return h.fingerprint == other.fingerprint }

// Drift is how the entries of a cluster differ from those that would be made from a snapshot. The zero Drift is none.
type Drift struct {
	// Unplanned are the hooks that they were not made from, as they are now.
	Unplanned []*Hook
	// Gone is how many hooks they were made from that are no longer there as they were. A bypass counts as one, and so does
	// its FailOpen.
	Gone int
	// Bypass reports whether they were not made from the bypass of the cluster, as it is now.
	Bypass bool
}

// Any reports whether they differ.
func (d *Drift) Any() bool { return len(d.Unplanned) > 0 || d.Gone > 0 || d.Bypass }

// Drift compares the plan of an entry of a cluster with the hooks of the snapshot. An entry without a plan was made from none.
func (s *Snapshot) Drift(cluster string, e Entry) Drift {
	hooks, bypass := s.EntryHooks(cluster), s.Bypass(cluster)
	if e.planned == plan(hooks, bypass) {
		return Drift{}
	}
	d := Drift{Gone: len(e.planned) / fingerprintLength}
	for _, f := range bypass.fingerprints() {
		if e.plans(f) {
			d.Gone--
		} else {
			d.Bypass = true
		}
	}
	for _, h := range hooks {
		if e.plans(h.fingerprint) {
			d.Gone--
		} else {
			d.Unplanned = append(d.Unplanned, h)
		}
	}
	return d
}
