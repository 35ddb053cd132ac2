package stream

import (
	"time"

	"google.golang.org/grpc/mem"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// transfer is a large review on its way in chunks. No handler can have started before the last of them.
type transfer struct {
	frame       *reviewFrame
	reservation *memory.Reservation
	rest        [][]byte // not taken yet
	left        int      // bytes of it
	total       int      // bytes of the encoded review
	cancelled   []uint32 // hooks that are not wanted any more; a Cancel follows when the review is whole
}

// nextChunk takes a part of the oldest large review, or the Cancel that comes in the place of the parts that are missing.
func (s *state) nextChunk(now time.Time) *Outgoing {
	for s.sending == nil {
		f, ok := s.large.pop()
		if !ok {
			return nil
		}
		if s.wanted(f, now) {
			s.beginTransfer(f, now)
		}
	}
	if s.expire(now); s.sending == nil {
		return s.nextControl()
	}
	t := s.sending
	if !t.reservation.Retain() {
		s.endTransfer(review.Cancelled())
		return s.nextControl()
	}
	out := t.chunk()
	if t.left == 0 {
		s.complete(t)
	}
	s.chunked = true
	return out
}

// beginTransfer starts a transfer, unless the review is larger than the host takes.
func (s *state) beginTransfer(f *reviewFrame, now time.Time) {
	head := appendHead(make([]byte, 0, f.bound), f, now)
	total := len(head) + f.body.length
	if total > s.maxFrame {
		s.drop(f, tooLarge(total, s.maxFrame), now)
		return
	}
	s.sending = newTransfer(f, head)
	f.progress, f.sent, f.body = partly, now, nil
}

func newTransfer(f *reviewFrame, head []byte) *transfer {
	total := len(head) + f.body.length
	t := &transfer{frame: f, reservation: f.body.reservation, rest: [][]byte{head}, left: total, total: total}
	for _, b := range f.body.buffers {
		t.rest = append(t.rest, b.ReadOnlyData())
	}
	return t
}

// expire ends the calls of the review under way whose time is over.
func (s *state) expire(now time.Time) {
	for i, t := range s.sending.frame.tickets {
		if s.isVacant(t) || now.Before(t.Call().Deadline) {
			continue
		}
		s.fail(s.sending.frame, t, notInTime(), now)
		if s.unwant(i); s.sending == nil {
			return
		}
	}
}

func (s *state) endTransfer(r review.Result) {
	f := s.sending.frame
	for i, t := range f.tickets {
		s.finish(t, r)
		f.tickets[i] = s.vacant
	}
	s.abandon()
}

// unwant takes a call out of the review under way. When none is left, a Cancel comes in the place of the chunks that are
// missing.
func (s *state) unwant(i int) {
	t := s.sending
	t.frame.tickets[i] = s.vacant
	t.cancelled = append(t.cancelled, uint32(i))
	if len(t.cancelled) == len(t.frame.tickets) {
		s.abandon()
	}
}

// abandon breaks the review under way off. Its slots stay taken until the host has answered for each hook.
func (s *state) abandon() {
	s.sending.frame.progress = abandoned
	s.send(cancelOf(s.sending.frame.id))
	s.sending = nil
}

func (s *state) complete(t *transfer) {
	t.frame.progress = whole
	if len(t.cancelled) > 0 {
		s.send(cancelOf(t.frame.id, t.cancelled...))
	}
	s.sending = nil
}

func (t *transfer) chunk() *Outgoing {
	data, size := t.cut(ChunkBytes)
	head := wire.ChunkHead(t.frame.id, t.total, len(t.frame.tickets), size)
	return &Outgoing{Parts: []Part{{Head: head, Body: data, Reservation: t.reservation}}}
}

// cut takes up to n bytes off the rest. They are not copied.
func (t *transfer) cut(n int) (data mem.BufferSlice, size int) {
	for size < n && len(t.rest) > 0 {
		piece := t.rest[0][:min(len(t.rest[0]), n-size)]
		data, size = append(data, mem.SliceBuffer(piece)), size+len(piece)
		if t.rest[0] = t.rest[0][len(piece):]; len(t.rest[0]) == 0 {
			t.rest = t.rest[1:]
		}
	}
	t.left -= size
	return data, size
}
