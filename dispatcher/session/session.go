package session

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"google.golang.org/grpc/mem"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
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

// release ends what the frame holds.
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

// Session is one live host stream. Its stream's own goroutine reads. Another one writes while there is something to write,
// and waits for more as long as reviews come: of thousands of sessions most have nothing to say.
type Session struct {
	registry *Registry
	id       string
	peer     identity.Peer
	instance string
	wishes   wishes
	tenant   *tenant   // set when the session has joined
	joined   time.Time // likewise
	traffic  *traffic
	channel  identity.Channel // of the stream: it says whether peer still holds
	turn     int              // in which the registry looks after it; the registry's lock guards it

	mu         sync.Mutex
	state      *state
	ended      error // why the session is over; nil while it lives
	stream     Stream
	goroutines *sync.WaitGroup
	writer     writer
	used       bool // a review was written since the last tick
	wake       chan struct{}

	open   atomic.Bool  // it takes new calls once it has room, for pools
	shared atomic.Bool  // several clusters may call, likewise
	load   atomic.Int64 // pairs outstanding, for picks without the lock
	room   atomic.Int64 // pairs that it takes, likewise
	heard  atomic.Int64 // unix ns of the last frame, likewise
	leaks  atomic.Int64 // pairs whose calls ended and that the host never answered, for metrics
	pools  atomic.Pointer[map[*pool]*member]
}

// newSession is a session that says Welcome first.
func newSession(r *Registry, id string, peer identity.Peer, hello *hostv1.Hello) *Session {
	now := time.Now()
	s := &Session{
		registry: r, id: id, peer: peer, channel: peer, traffic: &traffic{},
		instance: hello.GetInstance(), wishes: r.digests.wishesOf(hello),
		state: newState(now, hello),
		wake:  make(chan struct{}, 1),
	}
	s.heard.Store(now.UnixNano())
	s.open.Store(s.state.open())
	s.publish()
	s.pools.Store(&map[*pool]*member{})
	return s
}

// takes reports whether the session wants reviews of a cluster.
func (s *Session) takes(cluster string) bool {
	return len(s.wishes.clusters) == 0 || s.wishes.takes(s.registry.digests.cluster(cluster))
}

// serves reports whether any hook of the session is for a cluster.
func (s *Session) serves(cluster string) bool {
	for p := range *s.pools.Load() {
		if p.hook.Load().Serves(cluster) {
			return true
		}
	}
	return false
}

// share bounds what a cluster takes of the slots, if several may.
func (s *Session) share(v *view) {
	if several := v.several(s); several != s.shared.Load() {
		s.step(func(st *state) { st.shared = several })
		s.shared.Store(several)
	}
}

// suspect reports whether the session is too silent for new calls.
func (s *Session) suspect(now time.Time) bool {
	return now.UnixNano()-s.heard.Load() > int64(SuspectAfter)
}

// step runs f on the state and then does, outside the lock, what follows from it.
func (s *Session) step(f func(*state)) {
	var few [4]finished
	s.mu.Lock()
	before, open := s.state.room(), s.state.open()
	f(s.state)
	s.publish()
	freed, done := s.state.room() > before, s.state.results(few[:0])
	openChanged := s.state.open() != open
	if openChanged {
		s.open.Store(!open)
	}
	wake := s.summon()
	s.mu.Unlock()
	if wake {
		s.wake <- struct{}{} // the writer rests, so that there is room
	}
	if openChanged {
		s.registry.openChanged(s)
	}
	if freed { // first, so that who waits comes before who comes
		s.registry.freed(s)
	}
	s.settle(done)
}

// settle hands out the results of calls.
func (s *Session) settle(done []finished) {
	for _, x := range done {
		s.registry.settle(s, x.ticket, x.result)
	}
}

// summon sees to it that somebody writes what there is, and that nobody waits for nothing. It reports whether the writer
// has to be woken. The lock is held.
func (s *Session) summon() (wake bool) {
	if s.writer == working {
		return false
	}
	some := s.ended == nil && s.state.pending()
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

// publish shows picks what the state says. The lock is held.
func (s *Session) publish() {
	s.load.Store(int64(s.state.taken))
	s.room.Store(int64(s.state.room()))
}

// roomFor reports whether the session takes a call of a cluster now. It takes no lock: submit looks again.
func (s *Session) roomFor(cluster string) bool {
	free := s.room.Load()
	switch {
	case free <= 0 || !s.takes(cluster):
		return false
	case !s.shared.Load() || s.load.Load() < growthParts*(free-1): // even if one cluster holds all of them
		return true
	}
	return allowance(s.state.shares.held(cluster), free) > 0
}

// submit takes as many of the tickets, in order, as there is room for; they are of one batch. It returns how many. Who
// cancels a ticket meanwhile may not know of its seat: see [Registry.place].
func (s *Session) submit(tickets []*ticket) (n int) {
	s.step(func(st *state) {
		if n = min(st.roomFor(tickets[0].cluster()), len(tickets)); n == 0 {
			return
		}
		f := st.submit(tickets[:n])
		f.seat = seat{s, f.id}
		for _, t := range tickets[:n] {
			t.attempts++
			t.at.Store(&f.seat)
		}
	})
	return n
}

// cancel says that a call on this session is no longer waited for.
func (s *Session) cancel(frame uint64, t *ticket) {
	s.step(func(st *state) { st.cancel(frame, t) })
}

// send queues a control frame.
func (s *Session) send(c *hostv1.ConnectResponse) {
	s.step(func(st *state) { st.send(c) })
}

// close ends the session, and its stream, of which the host is told nothing more: a reader that finds a reason ends the
// session alone, and returns.
func (s *Session) close(cause error) {
	s.end(cause)
	if stream := s.current(); stream != nil {
		stream.End()
	}
}

// end ends the session. Only the first cause counts.
func (s *Session) end(cause error) {
	s.step(func(st *state) {
		if s.ended == nil {
			s.ended, s.used = cause, false
			st.end(cause)
		}
	})
}

// current is the stream; nil before it is served.
func (s *Session) current() Stream {
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

// tick looks at the time.
func (s *Session) tick(now time.Time) {
	patience := s.patience(now)
	_, lapsed := s.channel.Identity()
	var over error
	s.step(func(st *state) {
		st.carried(now, s.traffic.in.Load(), s.traffic.out.Load())
		s.used = false
		if lapsed != nil {
			st.lapse(now, lapsed)
		}
		if s.overstays(now) && st.deadline.IsZero() {
			st.drain(now.Add(ReplacedGrace), now, errUngranted, nil)
		}
		over = st.tick(now, patience)
		s.leaks.Store(int64(st.leaks.n))
	})
	if over != nil {
		s.close(over)
	}
}

// excuse takes time in which we did not look out of the silence.
func (s *Session) excuse(now time.Time, missed time.Duration) {
	s.step(func(st *state) {
		st.excuse(now, missed)
		s.heard.Store(st.heard.UnixNano())
	})
}

// patience is how long the session may be silent.
func (s *Session) patience(now time.Time) time.Duration {
	if s.suspect(now) {
		for p := range *s.pools.Load() {
			if !p.mostlyAlive(now) {
				return HostSilence
			}
		}
	}
	return LostAfter
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
		s.settle(done)
		s.registry.heard(s, told)
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
		s.registry.seeing.frames.Inc()
	}
	return out, rest
}

// cause is why the session ended.
func (s *Session) cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// run serves the session on its stream until one of them ends. Who owns the stream then ends that, with what run returns.
// What writes may do so for a little longer: whoever owns goroutines waits for it.
func (s *Session) run(stream Stream, goroutines *sync.WaitGroup) error {
	s.step(func(*state) { s.stream, s.goroutines = stream, goroutines })
	if s.cause() == nil {
		s.end(s.read())
	}
	return s.cause()
}
