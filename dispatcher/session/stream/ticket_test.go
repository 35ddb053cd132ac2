package stream

import (
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// ticket is a call of a batch, each with a body of its own.
type ticket struct {
	batch *review.CallSet
	index int
	begun time.Time
	ended atomic.Bool
	slot  atomic.Pointer[Slot]
}

func (t *ticket) Call() *review.Call { return &t.batch.Calls[t.index] }

func (t *ticket) Body() *Body { return NewBody(t.batch) }

func (t *ticket) Begun() time.Time { return t.begun }

func (t *ticket) Ended() bool { return t.ended.Load() }

func (t *ticket) Submitted(at *Slot) { t.slot.Store(at) }

// submit submits tickets in one frame.
func submit(s *state, tickets ...*ticket) *reviewFrame {
	f := newFrame(len(tickets))
	for _, t := range tickets {
		f.tickets = append(f.tickets, t)
	}
	s.submit(f)
	return f
}
