package session

import "time"

// leaks counts the slots of calls that ended long ago and that the host has never answered. Between two looks, which are
// [LeakedAfter] apart, an answer takes the slot out of the books: what has no call at two looks in a row is leaked.
type leaks struct {
	looked time.Time
	n      int     // slots that were leaked at the last look
	leaked *ticket // in the place of calls that had ended at a look before
}

// lookForLeaks counts leaked slots when the time for it has come. It reports whether they are half of those that the session has,
// or more. With fewer a cluster that holds all of them may still take one ([allowance]).
func (s *state) lookForLeaks(now time.Time) (most bool) {
	if now.Sub(s.leaks.looked) < LeakedAfter {
		return false
	}
	s.leaks.looked, s.leaks.n = now, 0
	for _, f := range s.calls {
		for i, t := range f.tickets {
			switch t {
			case s.nobody:
				f.tickets[i] = s.leaks.leaked
			case s.leaks.leaked:
				s.leaks.n++
			}
		}
	}
	return s.leaks.n > 0 && 2*s.leaks.n >= max(s.credit, s.taken)
}

// vacant reports whether a ticket stands in the place of a call that ended.
func (s *state) vacant(t *ticket) bool { return t == s.nobody || t == s.leaks.leaked }
