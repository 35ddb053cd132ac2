package chain

import (
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// deadlineOf returns the deadline of calls of a hook that take as long as they may.
func (o *Options) deadlineOf(h *match.Hook) time.Time {
	if !o.Certain.IsZero() && (o.FailOpen || !h.FailsClosed()) {
		return o.Certain
	}
	return o.Deadline
}

// timeLeft returns the time that a validating hook may take: its timeoutSeconds, or the time left if that is shorter.
func (v *Validate) timeLeft(h *match.Hook, now time.Time) time.Duration {
	return min(h.Timeout, v.options.deadlineOf(h).Sub(now))
}

// timeShare returns the time that a mutating hook may take: its timeoutSeconds, or its part of the time left if that is shorter. While other
// hooks may follow, a hook gets half of the time left, or more if its timeoutSeconds are a larger part of all timeouts to come. So a
// fail-open hook that hangs leaves time to the others, and the request does not fail (docs/deviations.md, D9).
func (m *Mutate) timeShare(at int, now time.Time) time.Duration {
	h, left := m.options.Hooks[at], m.options.deadlineOf(m.options.Hooks[at]).Sub(now)
	all := h.Timeout
	for _, later := range m.options.Hooks[at+1:] {
		if later.Decides() && !h.ActsWith(later) && (m.round < lastRound || m.mustReinvoke(later)) {
			all += later.Timeout
		}
	}
	if all > left && all > h.Timeout {
		left = max(left/2, time.Duration(float64(left)*(float64(h.Timeout)/float64(all))))
	}
	return min(h.Timeout, left)
}
