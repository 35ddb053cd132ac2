package session

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// Stream is one host stream as the core needs it. Send and Recv may each be called by one goroutine at a time, and by two
// at once. Both return when Context ends. Recv returns io.EOF only for a clean end by the host.
type Stream interface {
	// Send writes one frame. The frame is not touched afterwards by either side.
	Send(f *Outgoing) error
	// Recv reads one frame.
	Recv() (*hostv1.ConnectRequest, error)
	// Context ends with the stream.
	Context() context.Context
}

// Outgoing is one frame for a host: either a message, or a review as bytes.
type Outgoing struct {
	// Message is a control frame; nil for a review.
	Message *hostv1.ConnectResponse
	// Head is the encoded beginning of a ConnectResponse with a review, up to its request.
	Head []byte
	// Body is the request, encoded once for all hosts. It is shared and never written.
	Body [][]byte
	// Lease is what Body is accounted on; nil when nobody does. It is held until Send has returned; a stream that needs
	// Body for longer retains it.
	Lease *memory.Lease
}

// Session is one live host stream.
type Session struct {
	registry *Registry
	id       string
	identity string
	hello    *hostv1.Hello

	mu     sync.Mutex
	state  *state
	ended  error // why the session is over; nil while it lives
	wake   chan struct{}
	closed chan struct{}

	load  atomic.Int64 // pairs outstanding, for picks without the lock
	room  atomic.Int64 // pairs that it takes, likewise
	heard atomic.Int64 // unix ns of the last frame, likewise
	pools atomic.Pointer[map[match.HookID]*pool]
}

// newSession is a session that says Welcome first.
func newSession(r *Registry, id, identity string, hello *hostv1.Hello) *Session {
	now := time.Now()
	s := &Session{
		registry: r, id: id, identity: identity, hello: hello,
		state: newState(now, hello),
		wake:  make(chan struct{}, 1), closed: make(chan struct{}),
	}
	s.heard.Store(now.UnixNano())
	s.publish()
	s.pools.Store(&map[match.HookID]*pool{})
	return s
}

// takes reports whether the session wants reviews of a cluster.
func (s *Session) takes(cluster string) bool {
	return len(s.hello.GetClusters()) == 0 || slices.Contains(s.hello.GetClusters(), cluster)
}

// suspect reports whether the session is too silent for new calls.
func (s *Session) suspect(now time.Time) bool {
	return now.UnixNano()-s.heard.Load() > int64(SuspectAfter)
}

// locked runs f on the state and then does, outside the lock, what follows from it.
func (s *Session) locked(f func(*state) []finished) {
	s.mu.Lock()
	before := s.state.room()
	done := f(s.state)
	s.publish()
	freed := s.state.room() > before
	s.mu.Unlock()
	s.wakeWriter()
	if freed { // first, so that who waits comes before who comes
		s.registry.freed(s)
	}
	for _, x := range done {
		s.registry.settle(s, x.ticket, x.result)
	}
}

// publish shows picks what the state says. The lock is held.
func (s *Session) publish() {
	s.load.Store(int64(s.state.taken))
	s.room.Store(int64(s.state.room()))
}

// wakeWriter makes the writer look for frames.
func (s *Session) wakeWriter() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// submit takes as many of the tickets, in order, as there is room for; they are of one batch. It returns how many. Who
// cancels a ticket meanwhile may not know of its seat: see [Registry.place].
func (s *Session) submit(tickets []*ticket) int {
	s.mu.Lock()
	n := min(s.state.room(), len(tickets))
	if n > 0 {
		f := s.state.submit(slices.Clone(tickets[:n]))
		at := &seat{s, f.id}
		for _, t := range tickets[:n] {
			t.attempts++
			t.at.Store(at)
		}
		s.publish()
	}
	s.mu.Unlock()
	if n > 0 {
		s.wakeWriter()
	}
	return n
}

// cancel says that a call on this session is no longer waited for.
func (s *Session) cancel(frame uint64, t *ticket) {
	s.locked(func(st *state) []finished {
		st.cancel(frame, t)
		return nil
	})
}

// send queues a control frame.
func (s *Session) send(c *hostv1.ConnectResponse) {
	s.locked(func(st *state) []finished {
		st.send(c)
		return nil
	})
}

// close ends the session. Only the first cause counts.
func (s *Session) close(cause error) {
	s.locked(func(st *state) []finished {
		if s.ended != nil {
			return nil
		}
		s.ended = cause
		close(s.closed)
		return st.end(cause)
	})
}

// tick looks at the time.
func (s *Session) tick(now time.Time) {
	patience := s.patience(now)
	s.mu.Lock()
	err := s.state.tick(now, patience)
	due := len(s.state.control) > 0
	s.mu.Unlock()
	if err != nil {
		s.close(err)
	} else if due {
		s.wakeWriter()
	}
}

// patience is how long the session may be silent.
func (s *Session) patience(now time.Time) time.Duration {
	if s.suspect(now) {
		for _, p := range *s.pools.Load() {
			if !p.mostlyAlive(now) {
				return HostSilence
			}
		}
	}
	return LostAfter
}

// read moves frames from the stream to the state until either ends.
func (s *Session) read(stream Stream) error {
	for {
		in, err := stream.Recv()
		if err != nil {
			return err
		}
		now := time.Now()
		s.heard.Store(now.UnixNano())
		s.locked(func(st *state) (done []finished) {
			done, err = st.received(now, in)
			return done
		})
		if err != nil {
			return err
		}
	}
}

// write moves frames from the state to the stream until the session is closed.
func (s *Session) write(stream Stream) error {
	for {
		out, ok, err := s.next()
		if err != nil {
			return err
		}
		if !ok {
			select {
			case <-s.wake:
				continue
			case <-s.closed:
				return s.cause()
			}
		}
		err = stream.Send(out)
		out.Lease.Release()
		if err != nil {
			return fmt.Errorf("writing to the host: %w", err)
		}
	}
}

// next is the next frame to write, if there is one.
func (s *Session) next() (out *Outgoing, ok bool, err error) {
	for {
		now := time.Now()
		s.mu.Lock()
		before := s.state.room()
		control, f := s.state.next(now)
		var head *hostv1.Review
		var batch *dispatcher.Batch
		if f != nil { // its calls may end while it is encoded
			head, batch = f.head(now), f.tickets[0].batch
		}
		s.publish()
		limit, freed := s.state.maxFrame, s.state.room() > before
		s.mu.Unlock()
		if freed {
			s.registry.freed(s)
		}
		switch {
		case control != nil:
			return &Outgoing{Message: control}, true, nil
		case f == nil:
			return nil, false, nil
		}
		out, size, err := encode(head, batch.Body)
		switch {
		case err != nil:
			return nil, false, err
		case size > limit:
			s.refuse(f, size, limit)
		case batch.Lease.Retain():
			out.Lease = batch.Lease
			s.registry.seeing.frames.Inc()
			return out, true, nil
		default: // the review is over
			s.drop(f, review.Fail(review.FailureCancelled, "no longer waited for"))
		}
	}
}

// refuse fails the calls of a frame that the host says it cannot take.
func (s *Session) refuse(f *frame, size, limit int) {
	s.drop(f, review.Fail(review.FailureTooLarge, "the review is a frame of %d bytes, the host takes %d", size, limit))
}

// drop ends the calls of a frame that is not written.
func (s *Session) drop(f *frame, r review.Result) {
	s.locked(func(st *state) []finished { return st.drop(f, r) })
}

// cause is why the session ended.
func (s *Session) cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// run serves the session on its stream until one of them ends. Reader and writer end when the stream does, which may be
// after run has returned to the transport: whoever owns goroutines waits for them.
func (s *Session) run(stream Stream, goroutines *sync.WaitGroup) error {
	for _, loop := range []func(Stream) error{s.read, s.write} {
		goroutines.Go(func() { s.close(loop(stream)) })
	}
	<-s.closed
	return s.cause()
}
