package chain

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// reinvocation tracks which hooks are called again in the second round, by the rules of webhookReinvokeContext in
// k8s.io/apiserver/pkg/admission/plugin/webhook/mutating. A hook is matched before mustReinvoke is checked, as upstream, so
// that matching errors in the second round count. Policies are called again in any case: errors of their bindings and matchConditions count too, and
// a policy itself leaves out mutations that do not count in that round (policy.Again).
type reinvocation struct {
	upToDate   []*match.Hook // IfNeeded hooks called since the last change
	toReinvoke []*match.Hook // IfNeeded hooks called before a change
}

// objectChanged marks all hooks that were called before for reinvocation.
func (r *reinvocation) objectChanged() {
	r.toReinvoke = append(r.toReinvoke, r.upToDate...)
	r.upToDate = r.upToDate[:0]
}

// hookCalled records a call after its own change was recorded, so that only a later change marks the hook.
func (r *reinvocation) hookCalled(h *match.Hook) {
	if h.Reinvocation == admissionregistrationv1.IfNeededReinvocationPolicy {
		r.upToDate = append(r.upToDate, h)
	}
}

func (r *reinvocation) mustReinvoke(h *match.Hook) bool {
	return h.Policy != nil || slices.Contains(r.toReinvoke, h)
}

func (r *reinvocation) skipReason(h *match.Hook) string {
	switch {
	case h.Initializes():
		return "an initializer acts once"
	case h.Reinvocation != admissionregistrationv1.IfNeededReinvocationPolicy:
		return "its reinvocationPolicy is Never"
	case !slices.Contains(r.upToDate, h):
		return "it was not called in the first round"
	}
	return "nothing changed since it was called"
}
