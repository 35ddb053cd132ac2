package stream

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// writer is the state of the goroutine that writes the frames of a session.
type writer uint8

const (
	absent  writer = iota // the next frame starts one
	working               // one writes, and looks again
	resting               // one waits for wake
)

// Sink takes the events of a session. Its methods are called without the session's lock, and may call the session.
type Sink interface {
	// OpenChanged: the session takes new calls again, or none any more.
	OpenChanged()
	// SlotsFreed comes before the results of the calls that had the slots, so that waiting calls come before new ones.
	SlotsFreed()
	// CallEnded takes the result of a call.
	CallEnded(t Ticket, r review.Result)
	// CallOvertaken: another replica had the verdict first, so long after the call began.
	CallOvertaken(t Ticket, after time.Duration, now time.Time)
	// ProbesAnswered takes the answers of the host about pending hooks.
	ProbesAnswered(answers []ProbeAnswer)
}

// Options are the parts of a session. All but Traffic are required.
type Options struct {
	// ID names the session.
	ID string
	// Channel is the channel of the stream: its identity may lapse while the stream lasts.
	Channel identity.Channel
	// Sink takes the events.
	Sink Sink
	// Frames counts frames with reviews.
	Frames prometheus.Counter
	// Traffic is the traffic of the connection; nil if it is not counted.
	Traffic *Traffic
}

// Session is one live host stream. Its stream's own goroutine reads. Another one writes while frames are queued, and waits
// for more as long as reviews come: of thousands of sessions most have nothing to say. A session knows neither hooks nor
// other sessions: its sink reaches them. All methods but Init and Serve may be called concurrently.
type Session struct {
	// For picks without the lock: in one cache line, since a pick may look at thousands of sessions.
	open        atomic.Bool  // it takes new calls once it has a free slot
	shared      atomic.Bool  // several clusters may call
	load        atomic.Int64 // slots in use
	freeSlots   atomic.Int64 // calls that it takes
	heard       atomic.Int64 // unix ns of the last frame
	leakedSlots atomic.Int64 // slots of ended calls that the host never answered, for metrics

	sink     Sink
	id       string
	instance string
	traffic  *Traffic
	channel  identity.Channel
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

// Init prepares a zero session, whose first frame is Welcome.
func (s *Session) Init(hello *hostv1.Hello, o Options) {
	now := time.Now()
	s.id, s.channel, s.sink, s.frames, s.instance = o.ID, o.Channel, o.Sink, o.Frames, hello.GetInstance()
	if s.traffic = o.Traffic; s.traffic == nil {
		s.traffic = &Traffic{}
	}
	s.state, s.wake = newState(now, hello), make(chan struct{}, 1)
	s.heard.Store(now.UnixNano())
	s.open.Store(s.state.open())
	s.publishLoad()
}

// ID names the session.
func (s *Session) ID() string { return s.id }

// Instance is the process of the host, as it names itself.
func (s *Session) Instance() string { return s.instance }

// Open reports whether the session takes new calls once it has a free slot.
func (s *Session) Open() bool { return s.open.Load() }

// UsedSlots is how many calls the session has, and FreeSlots how many more it takes.
func (s *Session) UsedSlots() int64 { return s.load.Load() }

// FreeSlots is how many more calls the session takes.
func (s *Session) FreeSlots() int64 { return s.freeSlots.Load() }

// LeakedSlots is how many slots ended calls hold that the host never answered, at the last look.
func (s *Session) LeakedSlots() int64 { return s.leakedSlots.Load() }

// LastHeard is when the last frame of the host came.
func (s *Session) LastHeard() time.Time { return time.Unix(0, s.heard.Load()) }

// HasSpare reports whether half of the slots are free, one at least.
func (s *Session) HasSpare() bool {
	free := s.freeSlots.Load()
	return free > 0 && free >= s.load.Load()
}

// SetShared bounds the slots of each cluster, if several may use the session.
func (s *Session) SetShared(several bool) {
	if several != s.shared.Load() {
		s.step(func(st *state) { st.shared = several })
		s.shared.Store(several)
	}
}

// Unresponsive reports whether the session is too silent for new calls.
func (s *Session) Unresponsive(now time.Time) bool {
	return now.UnixNano()-s.heard.Load() > int64(SuspectAfter)
}

// step runs f on the state and then delivers its results and wakes the writer, outside the lock.
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
		s.sink.OpenChanged()
	}
	if freed {
		s.sink.SlotsFreed()
	}
	s.deliverResults(done)
}

func (s *Session) deliverResults(done []finished) {
	for _, x := range done {
		s.sink.CallEnded(x.ticket, x.result)
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

// HasSlotFor reports whether the session has a slot for a call of a cluster now. It takes no lock: [Submit] looks again.
func (s *Session) HasSlotFor(cluster string) bool {
	free := s.freeSlots.Load()
	switch {
	case free <= 0:
		return false
	case !s.shared.Load() || s.load.Load() < growthParts*(free-1): // even if one cluster holds all of them
		return true
	}
	return allowance(s.state.shares.held(cluster), free) > 0
}

// Submit submits as many of the tickets, in order, as the session has free slots; they are of one review. It returns how many.
// A ticket that ended meanwhile may not have known its slot: the caller looks, and cancels it there.
func Submit[T Ticket](s *Session, tickets []T) (n int) {
	s.step(func(st *state) {
		if n = min(st.freeSlotsFor(tickets[0].Body().cluster), len(tickets)); n == 0 {
			return
		}
		f := newFrame(n)
		for _, t := range tickets[:n] {
			f.tickets = append(f.tickets, t)
		}
		st.submit(f)
		f.slot = Slot{s, f.id}
		for _, t := range tickets[:n] {
			t.Submitted(&f.slot)
		}
	})
	return n
}

// Send queues a control frame, which goes before reviews.
func (s *Session) Send(c *hostv1.ConnectResponse) {
	s.step(func(st *state) { st.send(c) })
}

// Close ends the session and its stream, without a last frame for the host: a reader that finds a reason ends the
// session alone, and returns.
func (s *Session) Close(cause error) {
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
			st.endCalls(cause, time.Now())
		}
	})
}

// currentStream returns the stream; nil before it is served.
func (s *Session) currentStream() Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream
}

// Replace lets a newer session of the same instance have the new calls. Those in flight finish here, or fail over when
// the stream ends.
func (s *Session) Replace() {
	var over error
	s.step(func(st *state) { over = st.replaced(time.Now()) })
	if over != nil {
		s.Close(over)
	}
}

// Tick looks at the time. The host may be silent for silenceLimit; overstays ends a session whose identity has no grant.
func (s *Session) Tick(now time.Time, silenceLimit time.Duration, overstays bool) {
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
		s.Close(over)
	}
}

// DiscountStall subtracts time in which this process did not run from the silence of the host.
func (s *Session) DiscountStall(now time.Time, missed time.Duration) {
	s.step(func(st *state) {
		st.discountStall(now, missed)
		s.heard.Store(st.heard.UnixNano())
	})
}

// read moves frames from the stream to the state until either ends.
func (s *Session) read() error {
	var done []finished    // of the last frame
	var told []ProbeAnswer // likewise
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
			s.sink.ProbesAnswered(told)
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
			s.Close(fmt.Errorf("writing to the host: %w", err))
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

// Drain stops new calls, since the dispatcher stops; those in flight have until the deadline.
func (s *Session) Drain(deadline time.Time) {
	s.step(func(st *state) { st.drain(deadline, time.Now(), ErrStopping) })
}

// Probe asks the host whether the pending hooks that it serves are ready, again and again until names has them no more. It is called in
// the turn of the session, so that its names are the latest.
func (s *Session) Probe(names func() []string) {
	s.step(func(st *state) { st.pend(time.Now(), names()) })
}

// cause is why the session is over; nil while it lives.
func (s *Session) cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// Serve serves the session on its stream until either ends. The owner of the stream then ends that, with the error.
// The writer may go on for a little longer: the owner of goroutines waits for it.
func (s *Session) Serve(stream Stream, goroutines *sync.WaitGroup) error {
	s.step(func(*state) { s.stream, s.goroutines = stream, goroutines })
	if s.cause() == nil {
		s.endCalls(s.read())
	}
	return s.cause()
}
