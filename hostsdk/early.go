package hostsdk

import (
	"slices"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// earlyCancels are cancellations that came before their reviews. It is pure; the zero value is empty.
type earlyCancels struct {
	list []earlyCancel // oldest first
	size int           // of all in list
}

type earlyCancel struct {
	call  uint64
	hooks []uint32 // empty means all
	at    time.Time
}

// size counts a cancellation and each hook that it names.
func (e *earlyCancel) size() int { return 1 + len(e.hooks) }

// remember adds a cancellation, after it forgot those that came before a time. At the bound it forgets the oldest: their
// handlers run to their deadlines.
func (l *earlyCancels) remember(now, before time.Time, c *hostv1.Cancel) {
	l.forget(before)
	e := earlyCancel{call: c.GetCallId(), hooks: c.GetHookIndexes(), at: now}
	if e.size() > maxEarlyCancels {
		return
	}
	n := 0
	for l.size+e.size() > maxEarlyCancels {
		l.size -= l.list[n].size()
		n++
	}
	l.list = append(slices.Delete(l.list, 0, n), e)
	l.size += e.size()
}

// takeCall removes the cancellations of a call and returns those that did not come before a time.
func (l *earlyCancels) takeCall(before time.Time, call uint64) (of []earlyCancel) {
	l.forget(before)
	l.list = slices.DeleteFunc(l.list, func(e earlyCancel) bool {
		if e.call == call {
			l.size -= e.size()
			of = append(of, e)
		}
		return e.call == call
	})
	return of
}

func (l *earlyCancels) forget(before time.Time) {
	n := 0
	for n < len(l.list) && l.list[n].at.Before(before) {
		l.size -= l.list[n].size()
		n++
	}
	l.list = slices.Delete(l.list, 0, n)
}

// cancelled reports whether any of several cancellations names a hook.
func cancelled(early []earlyCancel, hook uint32) bool {
	return slices.ContainsFunc(early, func(e earlyCancel) bool { return len(e.hooks) == 0 || slices.Contains(e.hooks, hook) })
}
