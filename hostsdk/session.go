package hostsdk

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"sync"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// Stream is the host's end of one session. One goroutine sends and another one receives. Frames belong to the stream
// once they are sent, and to the session once they are received.
type Stream interface {
	// Send writes a frame, and waits while the other side does not take it. io.EOF says that the stream has ended, and
	// Recv why.
	Send(frame *hostv1.ConnectRequest) error
	// Recv waits for the next frame; io.EOF is the clean end of the stream.
	Recv() (*hostv1.ConnectResponse, error)
	// CloseSend says that no more frames are sent. Recv goes on.
	CloseSend() error
}

// OpenFunc opens the stream of a session. The end of ctx ends the stream at once, also while it is being opened. A gRPC
// client's Connect is one, but for its type.
type OpenFunc func(ctx context.Context) (Stream, error)

// listener is told what a session learns of its dispatcher. It is called from the session's reader and must not block.
type listener interface {
	welcomed(s *session, w *hostv1.Welcome)
	hookChanged(s *session, h *hostv1.HookState)
	leaving(s *session, d *hostv1.DispatcherDrain)
	ended(s *session)
}

// session is the shell around the state of one session: a reader, a writer, a timer, and a goroutine for each running
// handler. Each of them steps the state under mu and carries out the effects outside of it.
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

	// Each holds at most one wake-up, which says that there is something to look at under mu.
	forWriter, forReader, forTimer chan struct{}

	// Set once, by run, before anything else starts.
	handling context.Context //nolint:containedctx // the parent of the handlers' contexts, which outlive what started them
	abort    context.CancelCauseFunc

	mu        sync.Mutex
	state     *state // nil until the stream is open
	outbox    []*hostv1.ConnectRequest
	finishing bool // the writer half-closes once outbox is empty; nothing is added to it any more
	cancels   map[pair]context.CancelCauseFunc
}

// run opens the stream and serves until it ends; nil means that it ended cleanly. When ctx ends the session drains. The
// handlers' contexts have ended on return; handlers may still run.
func (s *session) run(ctx context.Context, open OpenFunc) error {
	lasting := context.WithoutCancel(ctx)
	streamCtx, abort := context.WithCancelCause(lasting)
	defer abort(errGone)
	stream, err := openStream(ctx, streamCtx, abort, open)
	if err != nil {
		return err
	}
	handling, stopHandling := context.WithCancelCause(lasting)
	defer stopHandling(errGone)
	s.handling, s.abort = handling, abort

	s.budget.join(s)
	defer s.budget.leave(s)
	defer s.listener.ended(s)
	s.begin()

	var pumps sync.WaitGroup
	defer pumps.Wait()
	defer abort(errGone)
	ended := make(chan error, 1)
	pumps.Go(func() { ended <- s.read(streamCtx, stream) })
	pumps.Go(func() { s.write(streamCtx, stream) })
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

// begin puts Hello first into the outbox. A share that changes meanwhile is told after it.
func (s *session) begin() {
	s.hello.MaxOutstanding = uint32(s.budget.share())
	s.mu.Lock()
	s.state = newState(time.Now(), s.hello, s.drain)
	s.outbox = append(s.outbox, &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Hello{Hello: s.hello}})
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
			s.step((*state).drain)
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
func (s *session) read(ctx context.Context, stream Stream) error {
	for {
		frame, err := stream.Recv()
		if err != nil {
			return err
		}
		s.step(func(st *state, now time.Time) effects { return st.frame(now, frame) })
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
	return len(s.outbox) > maxOutbox
}

// write is the one writer of the stream.
func (s *session) write(ctx context.Context, stream Stream) {
	for {
		batch, last := s.take()
		for _, frame := range batch {
			if err := stream.Send(frame); err != nil {
				s.unwritable(err)
				return
			}
		}
		if last {
			if err := stream.CloseSend(); err != nil {
				s.abort(err)
			}
			return
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-s.forWriter:
		case <-ctx.Done():
			return
		}
	}
}

// unwritable ends the sending. The reader goes on, and learns why the stream ended.
func (s *session) unwritable(err error) {
	s.mu.Lock()
	s.outbox, s.finishing = nil, true
	s.mu.Unlock()
	wake(s.forReader)
	if !errors.Is(err, io.EOF) {
		s.abort(err)
	}
}

// take hands the outbox to the writer, and says whether anything can come after it.
func (s *session) take() (batch []*hostv1.ConnectRequest, last bool) {
	s.mu.Lock()
	batch, last = s.outbox, s.finishing
	s.outbox = nil
	s.mu.Unlock()
	wake(s.forReader)
	return batch, last
}

// step lets the state decide, and carries out what it decided.
func (s *session) step(decide func(st *state, now time.Time) effects) {
	s.mu.Lock()
	if s.state == nil {
		s.mu.Unlock()
		return
	}
	before := s.state.wake()
	out := decide(s.state, time.Now())
	sooner := s.state.wake().Before(before)
	if !s.finishing {
		s.outbox = append(s.outbox, out.send...)
		s.finishing = out.finish
	}
	s.mu.Unlock()
	if len(out.send) > 0 || out.finish {
		wake(s.forWriter)
	}
	if sooner {
		wake(s.forTimer)
	}
	s.carryOut(&out)
}

// carryOut does what a step decided, except sending. Only the reader's steps decide more than that.
func (s *session) carryOut(out *effects) {
	if out.welcome != nil {
		s.listener.welcomed(s, out.welcome)
	}
	if out.hookState != nil {
		s.listener.hookChanged(s, out.hookState)
	}
	if out.leaving != nil {
		s.budget.leave(s)
		s.listener.leaving(s, out.leaving)
	}
	for _, inv := range out.start {
		s.start(inv)
	}
	for _, p := range out.cancel {
		s.cancel(p)
	}
	for _, p := range out.probe {
		s.probe(p)
	}
	if out.abort != nil {
		s.abort(out.abort)
	}
}

// start runs a handler in a goroutine of its own, under the deadline of its call.
func (s *session) start(inv invocation) {
	ctx, cancel := context.WithCancelCause(s.handling)
	s.mu.Lock()
	s.cancels[inv.pair] = cancel
	s.mu.Unlock()
	s.handlers.Go(func() {
		v := &hostv1.Verdict{CallId: inv.call, HookIndex: inv.hook}
		ctx, stop := context.WithDeadline(ctx, inv.deadline)
		defer stop()
		defer s.finish(v) // Also when the handler ends this goroutine.
		s.caller.run(ctx, s.hooks[inv.id], inv, v)
	})
}

// finish sends the verdict of a handler that has returned.
func (s *session) finish(v *hostv1.Verdict) {
	p := pair{call: v.GetCallId(), hook: v.GetHookIndex()}
	s.mu.Lock()
	cancel := s.cancels[p]
	delete(s.cancels, p)
	s.mu.Unlock()
	cancel(nil)
	s.step(func(st *state, now time.Time) effects { return st.finished(now, v) })
}

// cancel ends the context of a running handler.
func (s *session) cancel(p pair) {
	s.mu.Lock()
	cancel := s.cancels[p]
	s.mu.Unlock()
	if cancel != nil {
		cancel(errCancelled)
	}
}

// probe asks the hooks of a name whether they are ready.
func (s *session) probe(p *hostv1.Probe) {
	s.handlers.Go(func() {
		ctx, stop := context.WithTimeout(s.handling, probeTimeout)
		defer stop()
		notReady := error(NewError("the probe ended its goroutine", nil))
		defer func() {
			s.step(func(st *state, _ time.Time) effects { return st.probed(p.GetSeq(), notReady) })
		}()
		notReady = s.ready(ctx, p.GetHook())
	})
}

// ready is nil when the hooks of a name can judge reviews.
func (s *session) ready(ctx context.Context, name string) (notReady error) {
	defer func() {
		if value := recover(); value != nil {
			s.logger.ErrorContext(ctx, "probe panicked", slog.String("hook", name), slog.Any("panic", value))
			notReady = NewError("the probe panicked", nil)
		}
	}()
	for _, stage := range []admissionv1.Stage{admissionv1.Stage_STAGE_MUTATE, admissionv1.Stage_STAGE_VALIDATE} {
		h := s.hooks[hookID{name, stage}]
		if h == nil || h.probe == nil {
			continue
		}
		if err := h.probe(ctx); err != nil {
			s.logger.WarnContext(ctx, "hook is not ready", slog.String("hook", name), slog.Any("error", err))
			return err
		}
	}
	return nil
}

// shareChanged tells the dispatcher the session's share of the budget. The share is read under mu, so that of two
// changes the later one is told last.
func (s *session) shareChanged() {
	s.step(func(st *state, _ time.Time) effects { return st.credit(s.budget.share()) })
}

// wasUseful says whether the dispatcher sent anything after its welcome.
func (s *session) wasUseful() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state != nil && s.state.useful
}

// ignoredFrames is how many frames of unknown types came.
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
