package stream

import (
	"fmt"
	"slices"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/internal/wire"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// The optional features of the protocol that a host may know, as Hello names them. Other names mean nothing.
const (
	CapabilityBatches = "batches" // it takes Reviews; of a dispatcher: it takes Verdicts
	CapabilityChunks  = "chunks"  // it takes Chunk
)

// progress is how much of a frame the writer has taken.
type progress uint8

const (
	waiting   progress = iota // nothing
	partly                    // some chunks: no handler can have started yet
	whole                     // everything
	abandoned                 // some chunks and a Cancel; the host answers for each hook, and the answers are dropped
)

// reviewFrame is the calls that go to the host as one Review.
type reviewFrame struct {
	id       uint64
	tickets  []Ticket // by hook index; nil once the slot is free
	open     int      // slots that are not free
	share    *share   // of the cluster whose calls they are
	body     *Body    // shared by the calls; nil once the writer has taken it, or all calls have ended
	slot     Slot     // of the tickets
	bound    int      // bytes that the head takes at most
	progress progress
	sent     time.Time // when the writer took the first byte
	single   [1]Ticket
}

// size is how many bytes the frame takes at most: none if it will not be written.
func (f *reviewFrame) size() int {
	if f.body == nil {
		return 0
	}
	return f.bound + f.body.length
}

func (f *reviewFrame) wanted() bool { return f.open > 0 }

// finished is a call that has a result.
type finished struct {
	ticket Ticket
	result review.Result
}

// state is everything that is decided about one session: slots, credit, order of frames, liveness. It has no goroutine,
// no clock and no I/O; times come in. It has one owner at a time: the session's lock. state_write.go has the order of writes,
// state_read.go the effects of frames from the host.
//
// The rules: a call takes a slot from submit until its verdict, also after a cancel. Control frames go before reviews, and
// chunks of one large review take turns with small reviews. A review that the writer has not taken whole was never handed over, and
// may go elsewhere whatever its side effects.
type state struct {
	maxFrame int  // bytes; of a review if the host takes chunks
	chunks   bool // it does
	batches  bool // it takes several reviews in a frame

	credit    int // slots that the host offers
	usedSlots int // slots of calls without a verdict
	shares    shares
	shared    bool // several clusters may call: none takes more than its share
	lastID    uint64
	calls     map[uint64]*reviewFrame // frames with open slots
	ended     []finished              // calls that got their results since these were last taken
	vacant    Ticket                  // in the place of calls that ended, so that they are not kept until the host answers
	leaked    leakedSlots

	probing probing
	probed  []ProbeAnswer // answers since these were last taken

	control fifo[*hostv1.ConnectResponse]
	small   fifo[*reviewFrame] // not taken by the writer yet
	large   fifo[*reviewFrame] // likewise; these go in chunks
	sending *transfer          // the transfer that is under way; nil if none is
	chunked bool               // the last frame that was no control frame was a chunk
	writing time.Time          // since when the writer writes; zero when it is idle

	heard      time.Time // last frame from the host
	coming     time.Time // last part of a frame from it
	going      time.Time // last part of a frame to it
	in, out    uint64    // bytes that the connection had carried then
	wrote      time.Time // last frame to the host
	pinged     time.Time // last Ping
	pings      uint64
	ponged     uint64 // the last Ping that was answered
	violations decaying
	draining   bool      // the host takes nothing new
	crossed    int       // calls that were on their way to it then, and that it may still answer
	deadline   time.Time // of our own drain; zero when we do not drain
	leaving    error     // why we do
	closing    time.Time // when the host was asked for its last frame; zero before that
}

// newState is a session that has just been welcomed.
func newState(now time.Time, hello *hostv1.Hello) *state {
	s := &state{
		maxFrame:   DefaultFrameBytes,
		chunks:     slices.Contains(hello.GetCapabilities(), CapabilityChunks),
		batches:    slices.Contains(hello.GetCapabilities(), CapabilityBatches),
		credit:     DefaultOutstanding,
		calls:      make(map[uint64]*reviewFrame),
		heard:      now,
		wrote:      now,
		pinged:     now,
		violations: decaying{at: now},
		vacant:     &vacancy{},
		leaked:     leakedSlots{looked: now, vacated: &vacancy{}},
	}
	if n := hello.GetMaxFrameBytes(); n > 0 {
		s.maxFrame = int(n)
	}
	if n := hello.GetMaxOutstanding(); n > 0 {
		s.credit = min(int(n), MaxOutstanding)
	}
	return s
}

// open reports whether the session takes new calls once it has a free slot: neither side leaves, and the host has not paused.
func (s *state) open() bool { return s.credit > 0 && !s.draining && s.deadline.IsZero() }

// newFrame makes a frame with a place for n tickets.
func newFrame(n int) *reviewFrame {
	f := &reviewFrame{}
	if f.tickets = f.single[:0]; n > len(f.single) {
		f.tickets = make([]Ticket, 0, n)
	}
	return f
}

// submit queues a frame with the calls of one review, for which there have to be free slots.
func (s *state) submit(f *reviewFrame) {
	s.lastID++
	f.id, f.open, f.body = s.lastID, len(f.tickets), f.tickets[0].Body()
	f.bound = headBound(f.tickets)
	f.share = s.shares.of(f.body.cluster)
	s.addSlots(f, f.open)
	s.calls[f.id] = f
	if s.chunks && f.size() > MaxWholeBytes {
		s.large.pushWanted(f, (*reviewFrame).wanted)
	} else {
		s.small.pushWanted(f, (*reviewFrame).wanted)
	}
}

// cancel drops a call that has ended. The slot of a call that was sent stays taken until the host
// gives its verdict.
func (s *state) cancel(id uint64, t Ticket) {
	f := s.calls[id]
	if f == nil {
		return
	}
	i := slices.Index(f.tickets, t)
	switch {
	case i < 0:
	case f.progress == waiting:
		if s.free(f, i); !f.wanted() {
			f.body = nil
		}
	case f.progress == partly:
		s.unwant(i)
	default:
		f.tickets[i] = s.vacant
		s.send(cancelOf(id, uint32(i)))
	}
}

// finish ends a call, unless it has ended: then its place is vacant.
func (s *state) finish(t Ticket, r review.Result) {
	if t != nil && !s.isVacant(t) {
		s.ended = append(s.ended, finished{t, r})
	}
}

// results appends the calls that have a result since they were last asked for.
func (s *state) results(to []finished) []finished {
	if len(s.ended) == 0 {
		return to
	}
	to = append(to, s.ended...)
	clear(s.ended)
	if s.ended = s.ended[:0]; cap(s.ended) > 2*keptInQueue {
		s.ended = nil
	}
	return to
}

// timing is where the time of a call of a frame has gone so far. A call that was sent whole is on the way while it is being written, and if
// the host has been silent since and is suspect: hosts answer a Ping while their handlers run. Otherwise it is in the handler.
func (s *state) timing(f *reviewFrame, t Ticket, now time.Time) review.Timing {
	switch since := now.Sub(f.sent); {
	case f.sent.IsZero():
		return review.Timing{Queued: now.Sub(t.Begun())}
	case f.progress == whole && !s.writing.Equal(f.sent) && (s.heard.After(f.sent) || now.Sub(s.heard) <= SuspectAfter):
		return review.Timing{Queued: f.sent.Sub(t.Begun()), Host: since}
	default:
		return review.Timing{Queued: f.sent.Sub(t.Begun()), Wire: since}
	}
}

// fail ends a call of a frame without a verdict, unless it has ended.
func (s *state) fail(f *reviewFrame, t Ticket, r review.Result, now time.Time) {
	if t != nil && !s.isVacant(t) {
		r.Timing = s.timing(f, t, now)
		s.finish(t, r)
	}
}

// drop ends all calls of a frame with one result, and frees their slots.
func (s *state) drop(f *reviewFrame, r review.Result, now time.Time) {
	for i, t := range f.tickets {
		if t != nil {
			s.free(f, i)
			s.fail(f, t, r, now)
		}
	}
}

// endCalls ends the session: every call without a verdict is lost, or was never handed over.
func (s *state) endCalls(cause error, now time.Time) {
	s.draining = true
	s.forgetWrites()
	s.control = fifo[*hostv1.ConnectResponse]{}
	for _, f := range s.calls {
		r := review.Fail(review.FailureLost, "the stream of its host ended before the verdict, and the log of the host says why: %v", cause)
		r.Failure.NotStarted = f.progress < whole
		s.drop(f, r, now)
	}
}

// drain stops new calls for a cause; the session has until deadline for those in flight.
func (s *state) drain(deadline, now time.Time, cause error) {
	s.deadline, s.leaving = deadline, cause
	s.send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Drain{Drain: &hostv1.DispatcherDrain{
		GraceMs: wire.Milliseconds(deadline.Sub(now)),
	}}})
}

// replaced lets a session of the same instance that came later have the new calls. It returns an error when the session
// has to end at once: of one instance no more than two are kept.
func (s *state) replaced(now time.Time) error {
	if !s.deadline.IsZero() {
		return errReplaced
	}
	s.drain(now.Add(ReplacedGrace), now, errReplaced)
	return nil
}

// lapse lets a session end because its host is not known any more: the calls in flight have [LapsedGrace], and a drain that has
// begun takes no longer.
func (s *state) lapse(now time.Time, why error) {
	deadline := now.Add(LapsedGrace)
	if s.deadline.IsZero() || s.deadline.After(deadline) {
		s.drain(deadline, now, fmt.Errorf("%w: %w", errLapsed, why))
	}
}

// tick looks at the time. It returns an error when the session has to end, as it has to after silenceLimit without a frame.
func (s *state) tick(now time.Time, silenceLimit time.Duration) error {
	s.probe(now)
	switch {
	case !s.deadline.IsZero() && now.After(s.deadline):
		return s.leaving
	case !s.deadline.IsZero() && s.idle():
		return s.closeIdle(now)
	case s.stuck(now):
		return errStuck
	case s.lookForLeaks(now):
		return errLeaks
	case now.Sub(s.heard) > silenceLimit && now.Sub(s.coming) > silenceLimit:
		return errSilent
	case s.quiet(now) && now.Sub(s.pinged) >= pingAfter:
		s.ping(now)
	}
	return nil
}

func (s *state) ping(now time.Time) {
	s.pinged = now
	s.pings++
	s.send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Ping{Ping: &hostv1.Ping{Seq: s.pings}}})
}

// closeIdle ends a session that is leaving and has nothing left to do. It does so with a last frame of the host, which it asks for:
// gRPC sends the reason for the end only where its reader returns it, not where it was waiting (Stream.End).
func (s *state) closeIdle(now time.Time) error {
	switch {
	case s.closing.IsZero():
		s.closing = now
		s.ping(now)
	case now.Sub(s.closing) >= PingInterval:
		return s.leaving
	}
	return nil
}

// stuck reports whether a write does not end: nothing of it leaves, or no review can wait for it any more.
func (s *state) stuck(now time.Time) bool {
	if s.writing.IsZero() {
		return false
	}
	since := now.Sub(s.writing)
	return since > MaxReview || since > StuckAfter && now.Sub(s.going) > StuckAfter
}

// quiet reports whether one side has been silent for so long that a Ping is due.
func (s *state) quiet(now time.Time) bool {
	return now.Sub(s.heard) >= pingAfter || now.Sub(s.wrote) >= pingAfter
}

// discountStall takes time in which this process did not run out of how long the host has been silent and the
// writer busy.
func (s *state) discountStall(now time.Time, missed time.Duration) {
	for _, since := range []*time.Time{&s.heard, &s.coming, &s.writing, &s.going} {
		if !since.IsZero() {
			*since = sooner(now, since.Add(missed))
		}
	}
}

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (s *state) idle() bool { return s.usedSlots == 0 && s.control.len() == 0 && s.writing.IsZero() }
