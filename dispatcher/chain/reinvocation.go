package chain

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// reinvocation keeps which hooks have to be asked again, by the rules of webhookReinvokeContext in
// k8s.io/apiserver/pkg/admission/plugin/webhook/mutating. In the second round a hook is matched before it is looked up
// here, as upstream, so that a matching error is never missed.
type reinvocation struct {
	pending []*match.Hook // IfNeeded hooks that were called and saw every change so far
	flagged []*match.Hook // IfNeeded hooks that were called before a change
}

// changed takes note of a change: all that were called before are flagged.
func (r *reinvocation) changed() {
	r.flagged = append(r.flagged, r.pending...)
	r.pending = r.pending[:0]
}

// invoked takes note that a hook was called and its change, if any, recorded: a later change will flag it.
func (r *reinvocation) invoked(h *match.Hook) {
	if h.Reinvocation == admissionregistrationv1.IfNeededReinvocationPolicy {
		r.pending = append(r.pending, h)
	}
}

// wants reports whether a hook has to be asked again.
func (r *reinvocation) wants(h *match.Hook) bool { return slices.Contains(r.flagged, h) }

// unwanted says why a hook is not asked again.
func (r *reinvocation) unwanted(h *match.Hook) string {
	switch {
	case h.Reinvocation != admissionregistrationv1.IfNeededReinvocationPolicy:
		return "its reinvocationPolicy is Never"
	case !slices.Contains(r.pending, h):
		return "it was not called in the first round"
	}
	return "nothing changed since it was called"
}
