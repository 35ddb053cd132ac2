package remote

import (
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/bridge/adapt"
)

// play has calls begin and end together, at a time and with an outcome each, and returns the slots after them.
func play(s *slots, now time.Time, took, had time.Duration, outcomes ...adapt.Outcome) int {
	for range outcomes {
		s.began()
	}
	for _, outcome := range outcomes {
		s.ended(adapt.Call{Began: now, Ended: now.Add(took), Deadline: now.Add(had), Outcome: outcome})
	}
	return s.count()
}

func many(n int, outcome adapt.Outcome) []adapt.Outcome {
	out := make([]adapt.Outcome, n)
	for i := range out {
		out[i] = outcome
	}
	return out
}

func TestSlots(t *testing.T) {
	const quick, patience = time.Millisecond, 10 * time.Second
	now := time.Now()
	for name, test := range map[string]struct {
		took     time.Duration
		outcomes []adapt.Outcome
		want     int // of 16
	}{
		"one round of calls that all went well is one more":          {quick, many(32, adapt.Allowed), 17},
		"a denial is an answer":                                      {quick, many(32, adapt.Denied), 17},
		"calls that leave half of the slots free prove nothing":      {quick, many(7, adapt.Allowed), 16},
		"an overload takes half, however many calls of it there are": {quick, many(16, adapt.Overloaded), 8},
		"so does a webhook that takes no connection":                 {quick, many(3, adapt.Unreachable), 8},
		"so does a deadline that has passed":                         {patience, many(1, adapt.TimedOut), 8},
		"a call that took half of its time takes a tenth":            {patience / 2, many(16, adapt.Allowed), 14},
		"a call that is not waited for proves nothing":               {patience, many(16, adapt.Cancelled), 16},
		"an answer that is none proves nothing":                      {quick, many(16, adapt.Broken), 16},
		"a connection that was lost proves nothing":                  {quick, many(16, adapt.Lost), 16},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSlots(16, 64, 0)
			if got := play(&s, now, test.took, patience, test.outcomes...); got != test.want {
				t.Errorf("%d slots, want %d", got, test.want)
			}
			if s.flying != 0 {
				t.Errorf("%d calls are left", s.flying)
			}
		})
	}
}

func TestSlotsStayWithinTheirBounds(t *testing.T) {
	s, now := newSlots(16, 20, time.Second), time.Now()
	for i := range 100 {
		play(&s, now.Add(time.Duration(i)*time.Minute), time.Millisecond, time.Hour, many(s.count(), adapt.Allowed)...)
	}
	if s.count() != 20 {
		t.Errorf("grown to %d, want 20", s.count())
	}
	for i := range 100 {
		play(&s, now.Add(time.Duration(200+i)*time.Minute), time.Millisecond, time.Hour, adapt.Overloaded)
	}
	if s.count() != 1 {
		t.Errorf("shrunk to %d, want 1", s.count())
	}
	for i := range 100 { // One at a time, which uses the one slot.
		play(&s, now.Add(time.Duration(400+i)*time.Minute), time.Millisecond, time.Hour, many(s.count(), adapt.Allowed)...)
	}
	if s.count() != 20 {
		t.Errorf("grown again to %d, want 20", s.count())
	}
	if play(&s, now.Add(24*time.Hour), time.Second, time.Hour, adapt.Allowed) != 18 {
		t.Errorf("%d slots after a call that is slow by its own measure, want 18", s.count())
	}
}

// TestCallsFromBeforeACutDoNotCount: a burst that meets an overload is one sign, not one for each of its calls.
func TestCallsFromBeforeACutDoNotCount(t *testing.T) {
	s, now := newSlots(16, 64, 0), time.Now()
	for range 8 {
		s.began()
	}
	for i := range 8 { // All began at once, and end one after the other.
		s.ended(adapt.Call{Began: now, Ended: now.Add(time.Duration(i+1) * time.Millisecond), Deadline: now.Add(time.Hour), Outcome: adapt.Overloaded})
	}
	if s.count() != 8 {
		t.Errorf("%d slots, want 8", s.count())
	}
	if play(&s, now.Add(time.Second), time.Millisecond, time.Hour, adapt.Overloaded) != 4 {
		t.Errorf("%d slots after a later sign, want 4", s.count())
	}
	s.restart(16, now.Add(2*time.Second))
	if play(&s, now.Add(time.Second), 2*time.Second, time.Hour, adapt.Overloaded) != 16 {
		t.Errorf("%d slots after a call of the process that is gone, want 16", s.count())
	}
}
