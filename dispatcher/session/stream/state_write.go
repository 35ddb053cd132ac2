package stream

import (
	"fmt"
	"slices"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

func (s *state) send(c *hostv1.ConnectResponse) { s.control.push(c) }

// cancelOf makes a Cancel of some hooks of a review; none means all.
func cancelOf(id uint64, hooks ...uint32) *hostv1.ConnectResponse {
	return &hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Cancel{
		Cancel: &hostv1.Cancel{CallId: id, HookIndexes: hooks},
	}}
}

// hasFrames reports whether anything is queued for the writer.
func (s *state) hasFrames() bool {
	return s.control.len()+s.small.len()+s.large.len() > 0 || s.sending != nil
}

// next returns the next frames to write, or nil: control frames first, then small reviews and chunks in turn.
func (s *state) next(now time.Time) *Outgoing {
	out := s.nextControl()
	if out == nil && !s.chunked {
		out = s.nextChunk(now)
	}
	if out == nil {
		out = s.nextSmall(now)
	}
	if out == nil {
		out = s.nextChunk(now)
	}
	s.writing = time.Time{}
	if out != nil {
		s.writing, s.wrote = now, now
	}
	return out
}

func (s *state) nextControl() *Outgoing {
	c, ok := s.control.pop()
	if !ok {
		return nil
	}
	return &Outgoing{Message: c}
}

// nextSmall takes a review that goes whole; for a host that takes batches also those behind it, up to the bounds of one
// frame. None is waited for.
func (s *state) nextSmall(now time.Time) *Outgoing {
	var out *Outgoing
	var scratch []byte // for the heads of the frames
	for size := 0; ; {
		f, ok := s.small.peek()
		if !ok || out != nil && !s.fits(f, out, size) {
			return out.close()
		}
		s.small.pop()
		if !s.wanted(f, now) {
			continue
		}
		n, bytes := s.alike(f), f.size()
		if scratch == nil {
			scratch = make([]byte, n*f.bound)
		}
		part, rest, ok := s.encodeFrame(f, scratch, now)
		if !ok {
			continue
		}
		if out == nil {
			out = newBatch(n)
		}
		out.Parts, size, scratch = append(out.Parts, part), size+bytes, rest
		s.chunked = false
	}
}

// alike is about how many reviews will go together, if those that wait are as large as this one, which still has calls.
func (s *state) alike(f *reviewFrame) int {
	if !s.batches {
		return 1
	}
	return min(1+s.small.len(), MaxBatchReviews, max(1, MaxBatchBytes/f.size()))
}

// fits reports whether a review may go with those that are in a frame already, which have so many bytes at most.
func (s *state) fits(f *reviewFrame, out *Outgoing, size int) bool {
	return s.batches && len(out.Parts) <= MaxBatchReviews &&
		size+f.size() <= min(MaxBatchBytes, s.maxFrame)
}

// encodeFrame encodes a frame that is written now, unless its review is over or the host does not take it. rest is the part of
// scratch behind its head.
func (s *state) encodeFrame(f *reviewFrame, scratch []byte, now time.Time) (part Part, rest []byte, ok bool) {
	part, rest = encodeReview(f, scratch, now)
	switch size := len(part.Head) + f.body.length; {
	case size > s.maxFrame:
		s.drop(f, tooLarge(size, s.maxFrame), now)
		return part, scratch, false
	case !part.Reservation.Retain():
		s.drop(f, review.Cancelled(), now)
		return part, scratch, false
	}
	f.progress, f.sent, f.body = whole, now, nil
	return part, rest, true
}

// wanted takes the calls that ended, or whose time is over, out of a frame that is about to be written, and reports
// whether any is left.
func (s *state) wanted(f *reviewFrame, now time.Time) bool {
	live := f.tickets[:0]
	for _, t := range f.tickets {
		switch {
		case t == nil || t.Ended():
		case !now.Before(t.Call().Deadline):
			s.fail(f, t, notInTime(), now)
		default:
			live = append(live, t)
		}
	}
	clear(f.tickets[len(live):])
	s.addSlots(f, len(live)-f.open)
	f.tickets, f.open = live, len(live)
	if f.open == 0 {
		delete(s.calls, f.id)
	}
	return f.open > 0
}

// notInTime is the result of a call whose time was over before its host had it.
func notInTime() review.Result {
	return review.Result{Failure: review.NotStarted(review.FailureTimeout, "the time was over before the host had the review")}
}

// tooLarge is the result of a call that the host says it cannot take. Another replica may take more.
func tooLarge(size, most int) review.Result {
	return review.Result{Failure: review.NotStarted(review.FailureTooLarge,
		fmt.Sprintf("the review is a frame of %d bytes, the host takes %d", size, most))}
}

// forgetWrites drops all reviews that the writer has not taken whole.
func (s *state) forgetWrites() {
	s.small, s.large, s.sending = fifo[*reviewFrame]{}, fifo[*reviewFrame]{}, nil
}

// keptInQueue is how many places a queue keeps when it is empty.
const keptInQueue = 64

// fifo is a queue.
type fifo[T any] struct {
	items []T
	first int
}

func (q *fifo[T]) len() int { return len(q.items) - q.first }

func (q *fifo[T]) push(x T) {
	if len(q.items) == cap(q.items) && 2*q.first > len(q.items) { // rather than to grow
		n := copy(q.items, q.items[q.first:])
		clear(q.items[n:])
		q.items, q.first = q.items[:n], 0
	}
	q.items = append(q.items, x)
}

// pushWanted is push, for queues in which items may become unwanted: those make room before the queue
// grows.
func (q *fifo[T]) pushWanted(x T, wanted func(T) bool) {
	if len(q.items) == cap(q.items) {
		kept := q.items[:0]
		for _, y := range q.items[q.first:] {
			if wanted(y) {
				kept = append(kept, y)
			}
		}
		clear(q.items[len(kept):])
		q.items, q.first = slices.Grow(kept, len(kept)+1), 0 // so that it is seldom looked through
	}
	q.items = append(q.items, x)
}

func (q *fifo[T]) peek() (x T, ok bool) {
	if q.len() == 0 {
		return x, false
	}
	return q.items[q.first], true
}

func (q *fifo[T]) pop() (x T, ok bool) {
	if q.len() == 0 {
		return x, false
	}
	var none T
	x, q.items[q.first] = q.items[q.first], none
	q.first++
	switch {
	case q.len() > 0:
	case cap(q.items) > keptInQueue:
		*q = fifo[T]{}
	default:
		q.items, q.first = q.items[:0], 0
	}
	return x, true
}
