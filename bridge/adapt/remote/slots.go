package remote

import (
	"time"

	"github.com/portcullis-mesh/portcullis/bridge/adapt"
)

const (
	// overloadKeeps is the part of the slots that are left after a sign of overload, and slowKeeps after a call that was slow.
	overloadKeeps, slowKeeps = 0.5, 0.9
)

// slots are how many calls a webhook takes at a time, as far as its answers show. They shrink by a factor at a sign of overload, and
// grow by one for every slots calls that went well while at least half of them were in use: the additive increase and multiplicative
// decrease of TCP. Pure: time comes in as a parameter. Not safe for concurrent use.
type slots struct {
	most    int
	number  float64
	flying  int
	changed time.Time // calls that began before say nothing about the number since
	slow    time.Duration
}

// newSlots starts with a number of slots. A call is slow that takes as long as slow, or, if that is 0, half of the time that it has.
func newSlots(start, most int, slow time.Duration) slots {
	return slots{most: most, number: float64(start), slow: slow}
}

// count is the number of slots, at least 1.
func (s *slots) count() int { return max(1, int(s.number)) }

func (s *slots) began() { s.flying++ }

// ended learns from a call.
func (s *slots) ended(c adapt.Call) {
	inUse := s.flying
	s.flying--
	switch s.sign(c) {
	case signOverloaded:
		s.shrink(c, overloadKeeps)
	case signSlow:
		s.shrink(c, slowKeeps)
	case signWell:
		if 2*inUse >= s.count() {
			s.number = min(float64(s.most), s.number+1/s.number)
		}
	case signNone:
	}
}

func (s *slots) shrink(c adapt.Call, keeps float64) {
	if c.Began.Before(s.changed) {
		return
	}
	s.number, s.changed = max(1, s.number*keeps), c.Ended
}

// restart forgets a process that is gone.
func (s *slots) restart(number int, now time.Time) {
	s.number, s.changed = float64(number), now
}

type sign uint8

const (
	signNone sign = iota
	signWell
	signSlow
	signOverloaded
)

// sign is the evidence of a call about the webhook.
func (s *slots) sign(c adapt.Call) sign {
	switch c.Outcome {
	case adapt.Cancelled:
		return signNone
	case adapt.Unreachable, adapt.Overloaded, adapt.TimedOut:
		return signOverloaded
	case adapt.Allowed, adapt.Denied, adapt.Broken, adapt.Lost:
	}
	slow := s.slow
	if slow == 0 {
		slow = c.Deadline.Sub(c.Began) / 2
	}
	switch {
	case c.Ended.Sub(c.Began) >= slow:
		return signSlow
	case c.Outcome == adapt.Lost, c.Outcome == adapt.Broken:
		return signNone // An error page comes fast.
	}
	return signWell
}
