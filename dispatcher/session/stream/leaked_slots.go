package stream

import "time"

// leakedSlots counts the slots of calls that ended long ago and that the host has never answered. Between two looks, which are
// [LeakedAfter] apart, an answer takes the slot out of the books: a slot without a call at two looks in a row is leaked.
type leakedSlots struct {
	looked  time.Time
	n       int    // slots that were leaked at the last look
	vacated Ticket // in the place of calls that had ended at a look before
}

// lookForLeaks counts leaked slots when the time for it has come. It reports whether they are half of those that the session has,
// or more. With fewer a cluster that holds all of them may still take one ([allowance]).
func (s *state) lookForLeaks(now time.Time) (most bool) {
	if now.Sub(s.leaked.looked) < LeakedAfter {
		return false
	}
	s.leaked.looked, s.leaked.n = now, 0
	for _, f := range s.calls {
		for i, t := range f.tickets {
			switch t {
			case s.vacant:
				f.tickets[i] = s.leaked.vacated
			case s.leaked.vacated:
				s.leaked.n++
			}
		}
	}
	return s.leaked.n > 0 && 2*s.leaked.n >= max(s.credit, s.usedSlots)
}

// vacancy stands in the place of a call that ended.
type vacancy struct{ Ticket }

// Ended implements [Ticket].
func (*vacancy) Ended() bool { return true }

// isVacant reports whether a ticket stands in the place of a call that ended.
func (s *state) isVacant(t Ticket) bool { return t == s.vacant || t == s.leaked.vacated }
