package session

import (
	"slices"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

const (
	// AbsenceQuiet is for how long a hook is not logged again after a line that no host serves it, or that one
	// does again. A host that comes and goes all the time is logged six times a minute.
	AbsenceQuiet = 10 * time.Second
	// maxAbsencesNamed is how many hooks a line of the log names; the others are counted.
	maxAbsencesNamed = 8
)

// absences decides which hooks without a host are logged. It belongs to the goroutine of Run, and has no clock.
type absences struct {
	from  time.Time                  // nothing is logged before: hosts are still looking for this dispatcher
	told  map[match.HookID]bool      // hooks without a host, as was logged last
	quiet map[match.HookID]time.Time // until when nothing is logged of a hook
}

// update takes the hooks without a host. It returns the hooks to log: those that have lost their last host, and those that have one
// again. A hook that is not in force any more is forgotten.
func (a *absences) update(now time.Time, unserved []*match.Hook, inForce func(match.HookID) bool) (lost []*match.Hook, back []match.HookID) {
	if a.told == nil {
		a.from, a.told, a.quiet = now.Add(StartGrace), map[match.HookID]bool{}, map[match.HookID]time.Time{}
	}
	absent := make(map[match.HookID]bool, len(unserved))
	for _, h := range unserved {
		if absent[h.ID] = true; !a.told[h.ID] && a.mayLog(h.ID, now) {
			a.told[h.ID] = true
			lost = append(lost, h)
		}
	}
	for id := range a.told {
		switch {
		case absent[id]:
		case !inForce(id):
			delete(a.told, id)
		case a.mayLog(id, now):
			delete(a.told, id)
			back = append(back, id)
		}
	}
	for id, until := range a.quiet {
		if !now.Before(until) {
			delete(a.quiet, id)
		}
	}
	return lost, back
}

// mayLog reports whether a hook may be logged now. It may then not be for [AbsenceQuiet].
func (a *absences) mayLog(id match.HookID, now time.Time) bool {
	if now.Before(a.from) || now.Before(a.quiet[id]) {
		return false
	}
	a.quiet[id] = now.Add(AbsenceQuiet)
	return true
}

// logAbsences logs which hooks have lost their last host, in one line, and which have one again, in another line. It leaves out
// hooks in shadow, which decide nothing.
func (r *Router) logAbsences(now time.Time) {
	v := r.hooks.Load()
	unserved := slices.DeleteFunc(r.Unserved(), func(h *match.Hook) bool { return !h.Decides() })
	lost, back := r.absences.update(now, unserved, func(id match.HookID) bool {
		_, removed := v.removed[id]
		return v.pools[id] != nil && !removed
	})
	if len(lost) > 0 {
		names, closed := make([]string, 0, len(lost)), 0
		for _, h := range lost {
			names = append(names, hookName(h.ID))
			if h.FailsClosed() {
				closed++
			}
		}
		r.log.Warn("hooks have no host: requests that fail-closed ones cover are refused", "count", len(lost), "fail_closed", closed, "hooks", named(names))
	}
	if len(back) > 0 {
		names := make([]string, 0, len(back))
		for _, id := range back {
			names = append(names, hookName(id))
		}
		slices.Sort(names)
		r.log.Info("hooks have a host again", "count", len(back), "hooks", named(names))
	}
}

func hookName(id match.HookID) string { return id.Configuration + "/" + id.Name }

// named joins the names of hooks, as many as fit a line.
func named(names []string) string {
	text := strings.Join(names[:min(len(names), maxAbsencesNamed)], ",")
	if len(names) > maxAbsencesNamed {
		text += ",..."
	}
	return text
}
