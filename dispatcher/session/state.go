package session

import (
	"errors"
	"fmt"
	"slices"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Reasons for which a session ends by our doing.
var (
	errSilent    = errors.New("session: silent for too long")
	errStuck     = errors.New("session: a write does not end")
	errReplaced  = errors.New("session: replaced by a newer one of the same instance")
	errStrays    = errors.New("session: too many frames without meaning")
	errSecond    = errors.New("session: a second hello")
	errDispClose = errors.New("session: dispatcher is stopping")
)

// frame is one Review frame and the calls in it.
type frame struct {
	id      uint64
	tickets []*ticket // by hook index; nil once the slot is free
	open    int       // slots that are not free
	sent    time.Time // zero until the writer took it
}

// finished is a call that has a result.
type finished struct {
	ticket *ticket
	result review.Result
}

// state is everything that is decided about one session: slots, credit, order of frames, liveness. It has no goroutine,
// no clock and no I/O; times come in. It has one owner at a time: the session's lock.
//
// The rules: a pair takes a slot from submit until its verdict, also after a cancel. Control frames go before reviews.
// What the writer has not taken was never handed over, and may go elsewhere whatever its side effects.
type state struct {
	maxFrame int // bytes
	credit   int // pairs that may be outstanding
	taken    int // pairs that are

	lastID   uint64
	calls    map[uint64]*frame // frames with open slots
	queue    []*frame          // not taken by the writer yet, in order
	control  []*hostv1.ConnectResponse
	draining bool // the host takes nothing new

	heard    time.Time // last frame from the host
	pinged   time.Time // last Ping
	pings    uint64
	writing  time.Time // when the writer took what it is writing; zero when it is idle
	strays   int
	nobody   *ticket   // in the place of calls that were cancelled, so that they are not kept until the host answers
	deadline time.Time // of our own drain; zero when we do not drain
}

// newState is a session that has just been welcomed.
func newState(now time.Time, hello *hostv1.Hello) *state {
	s := &state{
		maxFrame: DefaultFrameBytes,
		credit:   DefaultOutstanding,
		calls:    make(map[uint64]*frame),
		heard:    now,
		pinged:   now,
		nobody:   &ticket{},
	}
	s.nobody.ended.Store(true)
	if n := hello.GetMaxFrameBytes(); n > 0 {
		s.maxFrame = int(n)
	}
	if n := hello.GetMaxOutstanding(); n > 0 {
		s.credit = min(int(n), MaxOutstanding)
	}
	return s
}

// room is how many pairs the session takes now.
func (s *state) room() int {
	if s.draining || !s.deadline.IsZero() {
		return 0
	}
	return max(0, s.credit-s.taken)
}

// suspect reports whether the session is too silent to get new calls.
func (s *state) suspect(now time.Time) bool { return now.Sub(s.heard) > SuspectAfter }

// submit takes calls of one batch into a frame. There has to be room for them.
func (s *state) submit(tickets []*ticket) *frame {
	s.lastID++
	f := &frame{id: s.lastID, tickets: tickets, open: len(tickets)}
	s.taken += len(tickets)
	s.calls[f.id] = f
	s.queue = append(s.queue, f)
	return f
}

// send queues a control frame.
func (s *state) send(c *hostv1.ConnectResponse) { s.control = append(s.control, c) }

// next gives the writer what to write now: a control frame, or a review, or nothing.
func (s *state) next(now time.Time) (*hostv1.ConnectResponse, *frame) {
	s.writing = time.Time{}
	if len(s.control) > 0 {
		c := s.control[0]
		s.control = s.control[1:]
		s.writing = now
		return c, nil
	}
	for len(s.queue) > 0 {
		f := s.queue[0]
		s.queue[0], s.queue = nil, s.queue[1:]
		s.forget(f)
		if f.open > 0 {
			f.sent, s.writing = now, now
			return nil, f
		}
	}
	return nil, nil
}

// forget takes the calls that ended while they waited out of a frame that is about to be written.
func (s *state) forget(f *frame) {
	live := f.tickets[:0]
	for _, t := range f.tickets {
		if t != nil && !t.ended.Load() {
			live = append(live, t)
		}
	}
	s.taken -= f.open - len(live)
	f.tickets, f.open = live, len(live)
	if f.open == 0 {
		delete(s.calls, f.id)
	}
}

// cancel says that the result of a call is no longer wanted. The slot of a call that was sent stays taken until the host
// gives its verdict.
func (s *state) cancel(id uint64, t *ticket) {
	f := s.calls[id]
	if f == nil {
		return
	}
	i := slices.Index(f.tickets, t)
	if i < 0 {
		return
	}
	if f.sent.IsZero() {
		s.free(f, i)
		return
	}
	f.tickets[i] = s.nobody
	s.send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Cancel{
		Cancel: &hostv1.Cancel{CallId: id, HookIndexes: []uint32{uint32(i)}},
	}})
}

// free gives the slot of a pair back.
func (s *state) free(f *frame, i int) {
	f.tickets[i] = nil
	f.open--
	s.taken--
	if f.open == 0 {
		delete(s.calls, f.id)
	}
}

// received takes a frame from the host. It returns the calls that have a result now, and an error when the session has to
// end.
func (s *state) received(now time.Time, in *hostv1.ConnectRequest) ([]finished, error) {
	s.heard = now
	switch x := in.GetFrame().(type) {
	case *hostv1.ConnectRequest_Verdict:
		return s.verdict(now, x.Verdict)
	case *hostv1.ConnectRequest_Drain:
		s.draining = true
		return s.notStarted(x.Drain.GetLastStartedCallId()), nil
	case *hostv1.ConnectRequest_Credit:
		s.credit = min(int(x.Credit.GetMaxOutstanding()), MaxOutstanding)
		return nil, nil
	case *hostv1.ConnectRequest_Pong:
		return nil, nil
	case *hostv1.ConnectRequest_Hello:
		return nil, errSecond
	}
	return nil, s.stray()
}

// stray counts a frame without meaning.
func (s *state) stray() error {
	s.strays++
	if s.strays > MaxStrays {
		return errStrays
	}
	return nil
}

// verdict ends a pair.
func (s *state) verdict(now time.Time, v *hostv1.Verdict) ([]finished, error) {
	f, i := s.calls[v.GetCallId()], int(v.GetHookIndex())
	if f == nil && s.draining && v.GetCallId() <= s.lastID {
		return nil, nil // the host refuses what was on its way when it said that it leaves
	}
	if f == nil || f.sent.IsZero() || i >= len(f.tickets) || f.tickets[i] == nil {
		return nil, s.stray()
	}
	t := f.tickets[i]
	s.free(f, i)
	if t == s.nobody {
		return nil, nil
	}
	r := resultOf(v)
	r.Timing.Queued = f.sent.Sub(t.begun)
	r.Timing.Host = (time.Duration(v.GetQueueUs()) + time.Duration(v.GetHandleUs())) * time.Microsecond
	r.Timing.Wire = max(0, now.Sub(f.sent)-r.Timing.Host)
	return []finished{{t, r}}, nil
}

// resultOf is a verdict as the result of a call.
func resultOf(v *hostv1.Verdict) review.Result {
	switch x := v.GetOutcome().(type) {
	case *hostv1.Verdict_Response:
		if x.Response != nil {
			return review.Result{Verdict: x.Response}
		}
	case *hostv1.Verdict_Error:
		if x.Error.GetPanicked() {
			return review.Fail(review.FailurePanic, "the handler panicked")
		}
		return review.Fail(review.FailureHandler, "%s", orElse(x.Error.GetMessage(), "the handler failed"))
	case *hostv1.Verdict_Cancelled:
		return review.Fail(review.FailureTimeout, "the handler stopped without a verdict")
	case *hostv1.Verdict_Refused:
		return review.Result{Failure: notStarted(
			review.FailureRefused, "the host refused: "+orElse(x.Refused.GetReason(), "no reason"))}
	}
	return review.Fail(review.FailureBadAnswer, "a verdict without an outcome")
}

// orElse is text, or another one if it is empty.
func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// notStarted is the failure of a call that no handler has seen.
func notStarted(kind review.FailureKind, why string) *review.Failure {
	return &review.Failure{Kind: kind, Err: errors.New(why), NotStarted: true}
}

// notStarted ends the calls behind the last one that a leaving host has started.
func (s *state) notStarted(last uint64) []finished {
	var out []finished
	for id, f := range s.calls {
		if id > last || f.sent.IsZero() {
			out = append(out, s.drop(f, review.Result{
				Failure: notStarted(review.FailureRefused, "the host is leaving"),
			})...)
		}
	}
	s.queue = nil
	return out
}

// drop ends all calls of a frame with one result.
func (s *state) drop(f *frame, r review.Result) []finished {
	var out []finished
	for i, t := range f.tickets {
		if t == nil {
			continue
		}
		s.free(f, i)
		if t != s.nobody {
			out = append(out, finished{t, r})
		}
	}
	return out
}

// end ends the session: every call without a verdict is lost, or was never handed over.
func (s *state) end(cause error) []finished {
	s.draining = true
	s.queue, s.control = nil, nil
	var out []finished
	for _, f := range s.calls {
		r := review.Fail(review.FailureLost, "the session ended: %v", cause)
		if f.sent.IsZero() {
			r.Failure.NotStarted = true
		}
		out = append(out, s.drop(f, r)...)
	}
	return out
}

// drain stops new calls; the session has until deadline for those in flight.
func (s *state) drain(deadline, now time.Time, peers []*hostv1.Peer) {
	s.deadline = deadline
	s.send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Drain{Drain: &hostv1.DispatcherDrain{
		GraceMs: millis(deadline.Sub(now)), Peers: peers,
	}}})
}

// tick looks at the time. It returns an error when the session has to end, as it has to after patience without a frame.
func (s *state) tick(now time.Time, patience time.Duration) error {
	switch {
	case !s.deadline.IsZero() && (s.idle() || now.After(s.deadline)):
		return errDispClose
	case !s.writing.IsZero() && now.Sub(s.writing) > LostAfter:
		return errStuck
	case now.Sub(s.heard) > patience:
		return errSilent
	case now.Sub(s.heard) >= PingInterval && now.Sub(s.pinged) >= PingInterval:
		s.pinged = now
		s.pings++
		s.send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Ping{Ping: &hostv1.Ping{Seq: s.pings}}})
	}
	return nil
}

// idle reports whether nothing is outstanding and nothing waits to be written.
func (s *state) idle() bool { return s.taken == 0 && len(s.control) == 0 && s.writing.IsZero() }

// head is a frame without its request: what differs from host to host.
func (f *frame) head(now time.Time) *hostv1.Review {
	head := &hostv1.Review{CallId: f.id, Hooks: make([]*hostv1.HookCall, len(f.tickets))}
	if span := f.tickets[0].parent; span.IsValid() {
		head.Traceparent = fmt.Sprintf("00-%s-%s-%s", span.TraceID(), span.SpanID(), span.TraceFlags())
		head.Tracestate = span.TraceState().String()
	}
	for i, t := range f.tickets {
		c := t.call()
		head.Hooks[i] = &hostv1.HookCall{
			Name:          c.Hook.ID.Name,
			Stage:         c.Hook.ID.Stage,
			RemainingMs:   millis(c.Deadline.Sub(now)),
			Round:         c.Round,
			Mode:          hostv1.Mode_MODE_DECIDE,
			Configuration: c.Hook.ID.Configuration,
		}
		if c.Span.IsValid() {
			id := c.Span.SpanID()
			head.Hooks[i].SpanId = id[:]
		}
	}
	return head
}

// millis is a duration on the wire: whole milliseconds, rounded down, never negative.
func millis(d time.Duration) uint32 {
	return uint32(min(max(0, d.Milliseconds()), int64(^uint32(0))))
}
