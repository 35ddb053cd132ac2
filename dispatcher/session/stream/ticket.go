package stream

import (
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Ticket is one call of one hook. Its methods may be called concurrently, and take no lock: a session calls them under its own.
type Ticket interface {
	// Call is the call as this ticket makes it.
	Call() *review.Call
	// Body is the request of the review, which all its tickets share.
	Body() *Body
	// Begun is when the call began.
	Begun() time.Time
	// Ended reports whether the call has its result, or needs none any more.
	Ended() bool
	// Submitted records the slot that the ticket has been given.
	Submitted(at *Slot)
}

// Slot is the place of a ticket on a session.
type Slot struct {
	session *Session
	frame   uint64
}

// Cancel frees the slot of a ticket that has ended.
func (s *Slot) Cancel(t Ticket) { s.session.step(func(st *state) { st.cancel(s.frame, t) }) }

// Timing returns where the time of a ticket without a result has gone so far; false if the session does not have it any more.
func (s *Slot) Timing(t Ticket, now time.Time) (spent review.Timing, ok bool) {
	s.session.mu.Lock()
	defer s.session.mu.Unlock()
	f := s.session.state.calls[s.frame]
	if f == nil || !slices.Contains(f.tickets, t) {
		return review.Timing{}, false
	}
	spent = s.session.state.timing(f, t, now)
	spent.Instance = s.session.instance
	return spent, true
}

// Instance is the process of the host, as it names itself.
func (s *Slot) Instance() string { return s.session.instance }

// Overtaken records that another replica had the verdict of a ticket first, so long after its call began.
func (s *Slot) Overtaken(t Ticket, after time.Duration, now time.Time) {
	s.session.sink.CallOvertaken(t, after, now)
}
