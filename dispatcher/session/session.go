package session

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/mem"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/identity"
)

// Stream is one host stream as the core needs it. Send and Recv may each be called by one goroutine at a time, and by two
// at once. Both return when Context ends, which End makes it do. Recv returns io.EOF only for a clean end by the host.
type Stream interface {
	// Send writes one frame. The frame is not touched afterwards by either side.
	Send(f *Outgoing) error
	// Recv reads one frame, which is valid until the next call.
	Recv() (*Incoming, error)
	// Context ends with the stream.
	Context() context.Context
	// End ends the stream's context, in the middle of whatever it does. It may be called at any time, and more than once.
	End()
}

// Outgoing is one frame for a host: either a message, or a frame that is encoded already, in parts.
type Outgoing struct {
	// Message is a control frame; nil for everything else.
	Message *hostv1.ConnectResponse
	// Parts are, one after the other, an encoded ConnectResponse.
	Parts []Part

	few [2]Part
}

// Part is one review, or a part of one, on the wire.
type Part struct {
	// Head is what belongs to this frame alone.
	Head []byte
	// Body follows it. Reviews are encoded once for all hosts: it is shared and never written, and nobody counts who refers
	// to it.
	Body mem.BufferSlice
	// Lease is what Body is accounted on; nil when nobody does. It is held until Send has returned; a stream that needs
	// Body for longer retains it.
	Lease *memory.Reservation
}

func (f *Outgoing) release() {
	for i := range f.Parts {
		f.Parts[i].Lease.Release()
	}
}

// writer is what becomes of the frames of a session.
type writer uint8

const (
	absent  writer = iota // who has something to write starts a writer
	working               // one writes, and looks again
	resting               // one waits for wake
)

// sink takes what happens on a session. Its methods are called without the session's lock, and may call the session.
type sink interface {
	// openChanged: the session takes new calls again, or none any more.
	openChanged()
	// slotsFreed comes before the results of the calls that had the slots, so that waiting calls come before new ones.
	slotsFreed()
	// callEnded takes the result of a call.
	callEnded(t *ticket, r review.Result)
	// callOvertaken: another replica had the verdict first, so long after the call began.
	callOvertaken(t *ticket, after time.Duration, now time.Time)
	// probesAnswered takes what the host said of pending hooks.
	probesAnswered(answers []probed)
}

// Session is one live host stream. Its stream's own goroutine reads. Another one writes while frames are queued, and waits
// for more as long as reviews come: of thousands of sessions most have nothing to say. A session knows neither hooks nor
// other sessions: what concerns these goes to its sink.
type Session struct {
	// For picks without the lock: in one cache line, since a pick may look at thousands of sessions.
	open        atomic.Bool  // it takes new calls once it has a free slot
	shared      atomic.Bool  // several clusters may call
	load        atomic.Int64 // slots in use
	freeSlots   atomic.Int64 // calls that it takes
	heard       atomic.Int64 // unix ns of the last frame
	hello       helloDigest
	leakedSlots atomic.Int64 // slots of ended calls that the host never answered, for metrics

	sink     sink
	id       string
	peer     identity.Peer
	instance string
	traffic  *traffic
	channel  identity.Channel   // of the stream: it says whether peer still holds
	frames   prometheus.Counter // of reviews

	mu         sync.Mutex
	state      *state
	ended      error // why the session is over; nil while it lives
	stream     Stream
	goroutines *sync.WaitGroup
	writer     writer
	used       bool // a review was written since the last tick
	wake       chan struct{}
}

// init makes a zero session one that says Welcome first.
func (s *Session) init(id string, peer identity.Peer, hello *hostv1.Hello, d digests) {
	now := time.Now()
	s.id, s.peer, s.channel, s.instance = id, peer, peer, hello.GetInstance()
	s.hello, s.traffic = d.ofHello(hello), &traffic{}
	s.state, s.wake = newState(now, hello), make(chan struct{}, 1)
	s.heard.Store(now.UnixNano())
	s.open.Store(s.state.open())
	s.publishLoad()
}

// takes reports whether the host takes reviews of a cluster.
func (s *Session) takes(cluster string) bool {
	return len(s.hello.clusters) == 0 || s.hello.names(cluster)
}

// setShared bounds what a cluster takes of the slots, if several may use the session.
func (s *Session) setShared(several bool) {
	if several != s.shared.Load() {
		s.step(func(st *state) { st.shared = several })
		s.shared.Store(several)
	}
}

// unresponsive reports whether the session is too silent for new calls.
func (s *Session) unresponsive(now time.Time) bool {
	return now.UnixNano()-s.heard.Load() > int64(SuspectAfter)
}

// step runs f on the state and then does, outside the lock, what follows from it.
func (s *Session) step(f func(*state)) {
	var few [4]finished
	s.mu.Lock()
	before, open := s.state.freeSlots(), s.state.open()
	f(s.state)
	s.publishLoad()
	freed, done := s.state.freeSlots() > before, s.state.results(few[:0])
	openChanged := s.state.open() != open
	if openChanged {
		s.open.Store(!open)
	}
	wake := s.wakeWriter()
	s.mu.Unlock()
	if wake {
		s.wake <- struct{}{} // the writer rests: this does not block
	}
	if openChanged {
		s.sink.openChanged()
	}
	if freed {
		s.sink.slotsFreed()
	}
	s.deliverResults(done)
}

func (s *Session) deliverResults(done []finished) {
	for _, x := range done {
		s.sink.callEnded(x.ticket, x.result)
	}
}

// wakeWriter starts a writer if frames are queued and none runs. It reports whether a resting writer has to be woken: for
// frames, or since it need not rest any more. The lock is held.
func (s *Session) wakeWriter() (wake bool) {
	if s.writer == working {
		return false
	}
	some := s.ended == nil && s.state.hasFrames()
	switch {
	case s.writer == resting && (some || !s.used):
		s.writer = working
		return true
	case s.writer == absent && some && s.stream != nil:
		s.writer = working
		s.goroutines.Go(s.write)
	}
	return false
}

// publishLoad copies the slots to the atomics that pick reads. The lock is held.
func (s *Session) publishLoad() {
	s.load.Store(int64(s.state.usedSlots))
	s.freeSlots.Store(int64(s.state.freeSlots()))
}

// hasSlotFor reports whether the session takes a call of a cluster now. It takes no lock: submit looks again.
func (s *Session) hasSlotFor(cluster string) bool {
	free := s.freeSlots.Load()
	switch {
	case free <= 0 || !s.takes(cluster):
		return false
	case !s.shared.Load() || s.load.Load() < growthParts*(free-1): // even if one cluster holds all of them
		return true
	}
	return allowance(s.state.shares.held(cluster), free) > 0
}

// submit takes as many of the tickets, in order, as there are free slots; they are of one batch. It returns how many.
// A ticket that is cancelled meanwhile may not know its slot yet: see [Registry.place].
func (s *Session) submit(tickets []*ticket) (n int) {
	s.step(func(st *state) {
		if n = min(st.freeSlotsFor(tickets[0].cluster()), len(tickets)); n == 0 {
			return
		}
		f := st.submit(tickets[:n])
		f.slot = slot{s, f.id}
		for _, t := range tickets[:n] {
			t.attempts++
			t.slot.Store(&f.slot)
		}
	})
	return n
}

// cancel drops the call of a ticket that has ended.
func (s *Session) cancel(frame uint64, t *ticket) {
	s.step(func(st *state) { st.cancel(frame, t) })
}

func (s *Session) send(c *hostv1.ConnectResponse) {
	s.step(func(st *state) { st.send(c) })
}

// close ends the session, and its stream, of which the host is told nothing more: a reader that finds a reason ends the
// session alone, and returns.
func (s *Session) close(cause error) {
	s.endCalls(cause)
	if stream := s.currentStream(); stream != nil {
		stream.End()
	}
}

// endCalls ends the session and its calls. Only the first cause counts.
func (s *Session) endCalls(cause error) {
	s.step(func(st *state) {
		if s.ended == nil {
			s.ended, s.used = cause, false
			st.endCalls(cause)
		}
	})
}

// currentStream returns the stream; nil before it is served.
func (s *Session) currentStream() Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream
}

// replaced lets a newer session of the same instance have the new calls. Those in flight finish here, or fail over when
// the stream ends.
func (s *Session) replaced() {
	var over error
	s.step(func(st *state) { over = st.replaced(time.Now()) })
	if over != nil {
		s.close(over)
	}
}

// tick looks at the time. The host may be silent for silenceLimit; overstays ends a session whose identity has no grant.
func (s *Session) tick(now time.Time, silenceLimit time.Duration, overstays bool) {
	_, lapsed := s.channel.Identity()
	var over error
	s.step(func(st *state) {
		st.carried(now, s.traffic.in.Load(), s.traffic.out.Load())
		s.used = false
		if lapsed != nil {
			st.lapse(now, lapsed)
		}
		if overstays && st.deadline.IsZero() {
			st.drain(now.Add(ReplacedGrace), now, errUngranted)
		}
		over = st.tick(now, silenceLimit)
		s.leakedSlots.Store(int64(st.leaked.n))
	})
	if over != nil {
		s.close(over)
	}
}

// discountStall subtracts time in which this process did not run from the silence of the host.
func (s *Session) discountStall(now time.Time, missed time.Duration) {
	s.step(func(st *state) {
		st.discountStall(now, missed)
		s.heard.Store(st.heard.UnixNano())
	})
}

// read moves frames from the stream to the state until either ends.
func (s *Session) read() error {
	var done []finished // of the last frame
	var told []probed   // likewise
	for {
		in, err := s.stream.Recv()
		if err != nil {
			return err
		}
		now := time.Now()
		s.step(func(st *state) {
			err = st.received(now, in)
			done, told = st.results(done[:0]), st.answers(told[:0])
			s.heard.Store(now.UnixNano())
		})
		s.deliverResults(done)
		if len(told) > 0 {
			s.sink.probesAnswered(told)
		}
		if err != nil {
			return err
		}
		if clear(done); cap(done) > 2*keptInQueue {
			done = nil
		}
	}
}

// write moves frames from the state to the stream, until there is none and none is to be waited for.
func (s *Session) write() {
	for {
		out, rest := s.next()
		switch {
		case out == nil && !rest:
			return
		case out == nil:
			<-s.wake
			runtime.Gosched() // Reviews that are being submitted now go together; those that are not yet are not waited for.
			continue
		}
		err := s.stream.Send(out)
		out.release()
		if err != nil {
			s.close(fmt.Errorf("writing to the host: %w", err))
		}
	}
}

// next is the next frame to write. Without one the writer rests until there is something, or leaves.
func (s *Session) next() (out *Outgoing, rest bool) {
	now := time.Now()
	s.step(func(st *state) {
		switch out = st.next(now); {
		case out != nil:
			s.used = s.used || out.Message == nil
		case s.used:
			s.writer, rest = resting, true
		default:
			s.writer = absent
		}
	})
	if out != nil && out.Message == nil {
		s.frames.Inc()
	}
	return out, rest
}

func (s *Session) cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// serve serves the session on its stream until one of them ends. Who owns the stream then ends that, with what run returns.
// What writes may do so for a little longer: whoever owns goroutines waits for it.
func (s *Session) serve(stream Stream, goroutines *sync.WaitGroup) error {
	s.step(func(*state) { s.stream, s.goroutines = stream, goroutines })
	if s.cause() == nil {
		s.endCalls(s.read())
	}
	return s.cause()
}
