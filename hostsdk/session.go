package hostsdk

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"sync"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// Stream is the host's end of one session: it carries encoded frames. One goroutine sends and another one receives.
// Frames belong to the stream once they are sent, and to the session and its handlers, for good, once they are received.
type Stream interface {
	// Send writes an encoded ConnectRequest, and waits while the other side does not take it. io.EOF means that the stream
	// has ended, and Recv why.
	Send(frame []byte) error
	// Recv waits for the next encoded ConnectResponse; io.EOF is the clean end of the stream.
	Recv() (frame []byte, err error)
	// CloseSend ends the sending. Recv goes on.
	CloseSend() error
}

// OpenFunc opens the stream of a session. The end of ctx ends the stream at once, also while it is being opened.
type OpenFunc func(ctx context.Context) (Stream, error)

// listener receives the frames that a session reads from its dispatcher. The session's reader calls it, so it must not
// block.
type listener interface {
	welcomed(s *session, w *hostv1.Welcome)
	hookChanged(s *session, h *hostv1.HookState)
	leaving(s *session, d *hostv1.DispatcherDrain)
	ended(s *session)
}

// session is the shell around the state of one session: a reader, a writer, a timer, and a goroutine for each running handler.
// Each of them steps the state under mu and carries out the effects outside of it. The writer and each handler that has returned
// may send, one at a time.
type session struct {
	// Set once, by newSession.
	hooks    map[hookID]*hook
	hello    *hostv1.Hello // without the share
	drain    time.Duration
	caller   *caller
	budget   *budget
	logger   *slog.Logger
	listener listener
	handlers *sync.WaitGroup // also probes
	pool     *workerPool

	// Each holds at most one wake-up: the state has changed.
	forWriter, forReader, forTimer chan struct{}

	// Set once, by run, before anything else starts.
	handling context.Context //nolint:containedctx // the parent of the handlers' contexts, which outlive the frames that started them
	abort    context.CancelCauseFunc
	stream   Stream

	mu      sync.Mutex
	state   *state   // nil until the stream is open
	sending bool     // by one goroutine, which owns frames meanwhile
	frames  [][]byte // that were sent last
}

// serveStream opens the stream and serves until it ends; nil means that it ended cleanly. When ctx ends the session drains. The
// handlers' contexts have ended on return; handlers may still run.
func (s *session) serveStream(ctx context.Context, open OpenFunc) error {
	lasting := context.WithoutCancel(ctx)
	streamCtx, abort := context.WithCancelCause(lasting)
	defer abort(errGone)
	stream, err := openStream(ctx, streamCtx, abort, open)
	if err != nil {
		return err
	}
	handling, stopHandling := context.WithCancelCause(lasting)
	defer stopHandling(errGone)
	s.handling, s.abort, s.stream = handling, abort, stream

	s.budget.addSession(s)
	defer s.budget.removeSession(s)
	defer s.listener.ended(s)
	s.sendHello()

	defer s.pool.close()
	var pumps sync.WaitGroup
	defer pumps.Wait()
	defer abort(errGone)
	ended := make(chan error, 1)
	pumps.Go(func() { ended <- s.read(streamCtx) })
	pumps.Go(func() { s.write(streamCtx) })
	err = s.supervise(ctx, ended)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if cause := context.Cause(streamCtx); cause != nil {
		return cause
	}
	return err
}

// openStream opens the stream in bounded time, and not past the end of ctx.
func openStream(ctx, streamCtx context.Context, abort context.CancelCauseFunc, open OpenFunc) (Stream, error) {
	stop := context.AfterFunc(ctx, func() { abort(context.Cause(ctx)) })
	timeout := time.AfterFunc(connectTimeout, func() { abort(errNoWelcome) })
	stream, err := open(streamCtx)
	timeout.Stop()
	if stopped := stop(); !stopped {
		return nil, context.Cause(ctx)
	}
	if cause := context.Cause(streamCtx); cause != nil {
		return nil, cause
	}
	return stream, err
}

// sendHello puts Hello first into the outbox. A share that changes meanwhile follows it, and so does a share of 0, which a
// Hello cannot express.
func (s *session) sendHello() {
	s.hello.MaxOutstanding = uint32(max(1, s.budget.share()))
	s.mu.Lock()
	s.state = newState(time.Now(), s.hello, s.hooks, s.drain)
	s.mu.Unlock()
	s.shareChanged()
}

// supervise waits for the end of the stream. Meanwhile it turns the end of ctx into a drain and watches the clock.
func (s *session) supervise(ctx context.Context, ended <-chan error) error {
	leave := ctx.Done()
	timer := time.NewTimer(s.untilWake())
	defer timer.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-leave:
			leave = nil
			s.step(func(st *state, now time.Time) (none effects) { st.drain(now); return none })
		case <-s.forTimer:
		case <-timer.C:
			s.step((*state).tick)
		}
		timer.Reset(s.untilWake())
	}
}

func (s *session) untilWake() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.state.wake()
	if at.IsZero() {
		return math.MaxInt64
	}
	return time.Until(at)
}

// read is the one reader of the stream. It waits while the writer is too far behind, so that a dispatcher that does not
// read is not read from either.
func (s *session) read(ctx context.Context) error {
	for {
		encoded, err := s.stream.Recv()
		if err != nil {
			return err
		}
		f, err := decodeFrame(encoded)
		if err != nil {
			return broken(err).abort
		}
		s.step(func(st *state, now time.Time) effects { return st.frame(now, f) })
		for s.backlog() {
			select {
			case <-s.forReader:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

func (s *session) backlog() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.out.waiting > maxOutbox
}

// step changes the state and carries out the effects. The writer empties the outbox.
func (s *session) step(change func(st *state, now time.Time) effects) {
	if s.stepUnsent(change) {
		wake(s.forWriter)
	}
}

// stepUnsent is step without the sending. It reports whether the caller should send.
func (s *session) stepUnsent(change func(st *state, now time.Time) effects) (toSend bool) {
	s.mu.Lock()
	if s.state == nil {
		s.mu.Unlock()
		return false
	}
	out := change(s.state, time.Now())
	sooner := s.state.takeHurry()
	toSend = s.state.toSend() && !s.sending
	s.mu.Unlock()
	if sooner {
		wake(s.forTimer)
	}
	s.carryOut(&out)
	return toSend
}

// carryOut carries out the effects of a step. Only the reader's steps have any but abort.
func (s *session) carryOut(out *effects) {
	if out.welcome != nil {
		s.listener.welcomed(s, out.welcome)
	}
	if out.hookState != nil {
		s.listener.hookChanged(s, out.hookState)
	}
	if out.leaving != nil {
		s.budget.removeSession(s)
		s.listener.leaving(s, out.leaving)
	}
	if len(out.start) > 0 {
		s.startHandlers(out.start)
	}
	for _, inv := range out.cancel {
		inv.ctx.end(errCancelled)
	}
	if out.probe != nil {
		s.runProbe(out.probe)
	}
	if out.abort != nil {
		s.abort(out.abort)
	}
}

// shareChanged announces the session's share of the budget. It reads the share under mu, so that the later of two changes is
// announced last.
func (s *session) shareChanged() {
	s.step(func(st *state, _ time.Time) (none effects) { st.credit(s.budget.share()); return none })
}

// wasUseful reports whether the dispatcher sent anything after its welcome.
func (s *session) wasUseful() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state != nil && s.state.useful
}

func (s *session) ignoredFrames() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.ignored
}

// wake leaves a wake-up unless there is one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
