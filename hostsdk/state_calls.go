package hostsdk

import (
	"fmt"
	"slices"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// pair is one call of one hook; a verdict ends it.
type pair struct {
	id    uint64 // of the call
	index uint32 // of the hook
}

// invocation is one handler's run for one verdict. The state makes it, and the session runs it.
type invocation struct {
	pair
	hook     *hook
	review   *review
	received time.Time // when the review was whole
	deadline time.Time

	// Of the session: one piece of memory for a call.
	session *session
	next    *invocation // of the pool's queue
	ctx     callContext
	request Request
	verdict hostv1.Verdict
	scratch [64]byte // for the encoded verdict, if it fits
}

// call returns the part of the review for this hook.
func (i *invocation) call() *wire.HookCallView { return &i.review.Hooks[i.index] }

// liveCall is a call with handlers that have not finished.
type liveCall struct {
	running []*invocation // by hook index; nil when there is none, or no more
	left    int

	one [1]*invocation // running, as long as there is one
}

func (s *state) refuse(p pair, reason string) {
	v := &hostv1.Verdict{
		CallId: p.id, HookIndex: p.index, Outcome: &hostv1.Verdict_Refused{Refused: &hostv1.Refused{Reason: reason}},
	}
	s.sendVerdict(v, encodeVerdict(nil, v))
}

// broken ends a session whose dispatcher violates the contract: the two sides no longer agree on the calls in flight.
func broken(how error) effects {
	return effects{abort: fmt.Errorf("hostsdk: the dispatcher broke the contract: %w", how)}
}

func (s *state) chunk(now time.Time, c *wire.ChunkView) effects {
	if s.calls[c.CallID] != nil {
		return broken(fmt.Errorf("call %d came twice", c.CallID))
	}
	encoded, err := s.assembly.addChunk(now, c)
	if err != nil {
		return broken(err)
	}
	s.highest = max(s.highest, c.CallID)
	if encoded == nil {
		return effects{}
	}
	reviews, err := decodeReview(encoded)
	if err != nil {
		return broken(fmt.Errorf("the chunks of call %d are no review: %w", c.CallID, err))
	}
	if r := &reviews[0]; r.CallID != c.CallID || len(r.Hooks) != int(c.Hooks) {
		return broken(fmt.Errorf("the chunks of call %d hold call %d of %d hooks, not %d", c.CallID, r.CallID, len(r.Hooks), c.Hooks))
	}
	return s.reviews(now, s.assembly.began, reviews)
}

// whole takes reviews that come in one piece. Their ids increase, so that a call that comes again is noticed also after its end.
// Reviews in chunks have an order of their own.
func (s *state) whole(now time.Time, reviews []review) effects {
	for i := range reviews {
		call := reviews[i].CallID
		if call <= s.lastWhole && s.anyWhole {
			return broken(fmt.Errorf("call %d came after call %d: each comes once, in the order of their ids", call, s.lastWhole))
		}
		s.lastWhole, s.anyWhole = call, true
	}
	return s.reviews(now, now, reviews)
}

// reviews starts handlers, and refuses the calls that cannot start. Their time counts from written: the arrival of the reviews,
// or of the first chunk.
func (s *state) reviews(now, written time.Time, reviews []review) effects {
	asked := 0
	for i := range reviews {
		asked += len(reviews[i].Hooks)
	}
	// Pointers into it are kept: it never grows.
	start := make([]invocation, 0, min(asked, max(0, s.limit-s.outstanding)))
	for i := range reviews {
		var err error
		if start, err = s.review(now, written, &reviews[i], start); err != nil {
			return broken(err)
		}
	}
	s.finishWhenDrained(now)
	return effects{start: start}
}

// review appends the handlers of one review to start. Ids are never reused: a second review of a live call would leave
// the two sides with different calls in flight.
func (s *state) review(now, written time.Time, r *review, start []invocation) ([]invocation, error) {
	if s.calls[r.CallID] != nil || s.assembly.assembling() && s.assembly.call == r.CallID {
		return nil, fmt.Errorf("call %d came twice", r.CallID)
	}
	if len(r.Hooks) > maxReviewHooks {
		return nil, tooManyHooks(r.CallID, len(r.Hooks))
	}
	s.highest = max(s.highest, r.CallID)
	early := s.early.takeCall(now.Add(-s.silence), r.CallID)
	live := &r.live
	if live.running = live.one[:]; len(r.Hooks) != 1 {
		live.running = make([]*invocation, len(r.Hooks))
	}
	for i := range r.Hooks {
		h, p := &r.Hooks[i], pair{r.CallID, uint32(i)}
		asked := s.hooks[hookID{string(h.Name), h.Stage}]
		if reason := s.refusal(r, h, asked, cancelled(early, p.index)); reason != "" {
			s.refuse(p, reason)
			continue
		}
		start = start[:len(start)+1]
		inv := &start[len(start)-1]
		inv.pair, inv.hook, inv.review = p, asked, r
		inv.received, inv.deadline = now, written.Add(milliseconds(h.RemainingMS))
		live.running[i] = inv
		live.left++
		s.outstanding++
	}
	if live.left > 0 {
		s.calls[r.CallID] = live
		s.lastStarted = max(s.lastStarted, r.CallID)
	}
	return start, nil
}

// refusal returns the reason not to start the handler of a hook; empty if it starts.
func (s *state) refusal(r *review, call *wire.HookCallView, asked *hook, cancelled bool) string {
	switch {
	case s.draining:
		return refusedDraining
	case asked == nil:
		return refusedUnknown
	case !r.request.present:
		return refusedEmpty
	case cancelled:
		return refusedCancelled
	case call.RemainingMS == 0:
		return refusedNoTime
	case s.outstanding >= s.limit:
		return refusedOverloaded
	default:
		return ""
	}
}

// cancel cancels running handlers. A cancellation before its review is remembered; one after the verdict is ignored.
func (s *state) cancel(now time.Time, c *hostv1.Cancel) effects {
	if s.assembly.assembling() && s.assembly.call == c.GetCallId() {
		return s.cancelChunks(now, c)
	}
	live := s.calls[c.GetCallId()]
	if live == nil {
		if c.GetCallId() > s.highest {
			s.early.remember(now, now.Add(-s.silence), c)
		}
		return effects{}
	}
	return effects{cancel: live.named(c.GetHookIndexes())}
}

// named returns the running handlers of a list of hook indexes; an empty list means all.
func (l *liveCall) named(indexes []uint32) (out []*invocation) {
	if len(indexes) == 0 {
		return slices.DeleteFunc(slices.Clone(l.running), func(i *invocation) bool { return i == nil })
	}
	for _, hook := range indexes {
		if int(hook) < len(l.running) && l.running[hook] != nil {
			out = append(out, l.running[hook])
		}
	}
	return out
}

// cancelChunks cancels a review that has come in part. If all its hooks are cancelled, no more chunks come; if some are, the
// cancellation is remembered, since the others still need the review.
func (s *state) cancelChunks(now time.Time, c *hostv1.Cancel) effects {
	if !s.assembly.covers(c) {
		s.early.remember(now, now.Add(-s.silence), c)
		return effects{}
	}
	for hook := range s.assembly.drop() {
		v := &hostv1.Verdict{
			CallId: c.GetCallId(), HookIndex: hook, Outcome: &hostv1.Verdict_Cancelled{Cancelled: &hostv1.Cancelled{}},
		}
		s.sendVerdict(v, encodeVerdict(nil, v))
	}
	s.finishWhenDrained(now)
	return effects{}
}

// finished queues the verdict of a handler that has returned. It is sent also for a cancelled call: it alone frees the slot.
func (s *state) finished(now time.Time, p pair, v *hostv1.Verdict, encoded []byte) {
	live := s.calls[p.id]
	if live == nil || live.running[p.index] == nil {
		return
	}
	live.running[p.index] = nil
	live.left--
	s.outstanding--
	if live.left == 0 {
		delete(s.calls, p.id)
	}
	s.sendVerdict(v, encoded)
	s.finishWhenDrained(now)
}
