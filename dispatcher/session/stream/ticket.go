package stream

import (
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

// Instance is the process of the host, as it names itself.
func (s *Slot) Instance() string { return s.session.instance }

// Overtaken records that another replica had the verdict of a ticket first, so long after its call began.
func (s *Slot) Overtaken(t Ticket, after time.Duration, now time.Time) {
	s.session.sink.CallOvertaken(t, after, now)
}
