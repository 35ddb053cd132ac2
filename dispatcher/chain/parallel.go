package chain

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// startTogether starts the calls of the initializers that act at the same time as h, whose turn has just come: all of them get the object as
// it is now. Their results are applied in order, each as a change of the object that the ones before it left.
func (m *Mutate) startTogether(h *match.Hook) {
	for !m.done && m.next < len(m.options.Hooks) && h.ActsWith(m.options.Hooks[m.next]) {
		at := m.next
		m.next++
		c := m.matchHook(m.options.Hooks[at])
		m.addCall(c)
		switch now := m.options.timeNow(m.now); {
		case c.refused != nil:
			m.fail(c.refused)
		case c.state == skipped:
		case c.startWithin(&m.options, now, m.timeShare(at, now)):
			m.startCall(c)
			m.together = append(m.together, c)
		default:
			m.together = append(m.together, c) // its time was over at once
		}
	}
}

// takeTogether gives the next call of those that were started together its turn.
func (m *Mutate) takeTogether() {
	m.current, m.together = m.together[0], m.together[1:]
}

// abandonTogether cancels the calls that were started together, and not decided on: the review has ended.
func (m *Mutate) abandonTogether() {
	for _, c := range slices.Concat([]*call{m.current}, m.together) {
		if c != nil && c.state == started {
			c.state = abandoned
			m.cancel = append(m.cancel, c.ID)
		}
	}
	m.current, m.together = nil, nil
}

// conflicts returns the status of a request that is refused, whatever the failure policies: an initializer has changed a field that others
// have changed at the same time, and which of them counts would be chance.
func (m *Mutate) conflicts(c *call, conflict *conversion.ConflictError) *admissionv1.Status {
	var names []string
	for _, earlier := range append(slices.Clone(m.patches), c) {
		if earlier == c || c.Hook.ActsWith(earlier.Hook) {
			names = append(names, fmt.Sprintf("%q", earlier.Hook.ID.Name))
		}
	}
	return internal("initializers %s act at the same time and change %s to different values: order them with spec.after or spec.before of a "+
		"HookRoute, or take spec.parallel off", strings.Join(names, " and "), conflict.Field)
}
