package hosttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// Patience is how long a host may take for anything that the caller's context does not bound.
const Patience = 10 * time.Second

const (
	// maxWhole is the largest review that is sent in one frame to a host that takes chunks.
	maxWhole = 128 << 10
	// chunkBytes is how much of a larger one is in each chunk.
	chunkBytes = 64 << 10
)

// Stream is the dispatcher's end of one session: a [Peer], or a stream of a gRPC server.
type Stream interface {
	// Send writes a frame to the host.
	Send(frame *hostv1.ConnectResponse) error
	// Recv waits for the host's next frame; io.EOF means that it sends no more.
	Recv() (*hostv1.ConnectRequest, error)
}

// Session is a session with one host, seen from the dispatcher. Its methods may be called from any goroutine.
type Session struct {
	hello  *hostv1.Hello
	stream Stream

	sending sync.Mutex // one Send at a time
	posting sync.Mutex // one review at a time

	mu      sync.Mutex
	lastID  uint64
	waiting map[answerKey]chan<- *hostv1.ConnectRequest // each takes one frame
	credit  uint32

	drained chan struct{} // closed with drain set
	drain   *hostv1.HostDrain
	ended   chan struct{} // closed with err set, once the host sends no more
	err     error
}

// answerKey names the frame that an answer of the host belongs to.
type answerKey struct {
	kind frameKind
	id   uint64
	hook uint32
}

type frameKind uint8

const (
	verdictFrame frameKind = iota
	pongFrame
	probeFrame
)

// Accept takes the host's Hello from a stream and answers with welcome, in which the fields that matter to a host are
// filled where they are zero; nil is a welcome with those alone. It puts every offered hook in rotation.
func Accept(stream Stream, welcome *hostv1.Welcome) (*Session, error) {
	first, err := stream.Recv()
	if err != nil {
		return nil, fmt.Errorf("hosttest: waiting for hello: %w", err)
	}
	hello := first.GetHello()
	if hello == nil {
		return nil, fmt.Errorf("hosttest: the first frame is %T, want Hello", first.GetFrame())
	}
	s := &Session{
		hello:   hello,
		stream:  stream,
		waiting: map[answerKey]chan<- *hostv1.ConnectRequest{},
		credit:  hello.GetMaxOutstanding(),
		drained: make(chan struct{}),
		ended:   make(chan struct{}),
	}
	err = s.Send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Welcome{Welcome: complete(welcome, hello)}})
	if err != nil {
		return nil, fmt.Errorf("hosttest: sending welcome: %w", err)
	}
	return s, nil
}

// complete fills a welcome for hello.
func complete(given *hostv1.Welcome, hello *hostv1.Hello) *hostv1.Welcome {
	w := &hostv1.Welcome{
		SessionId:    cmp.Or(given.GetSessionId(), "session-of-"+hello.GetInstance()),
		DispatcherId: cmp.Or(given.GetDispatcherId(), "hosttest"),
		Protocol:     cmp.Or(given.GetProtocol(), 1),
		Revision:     cmp.Or(given.GetRevision(), "hosttest"),
		// Nothing is sent by itself, so silence must not end the session.
		SilenceMs:       cmp.Or(given.GetSilenceMs(), math.MaxInt32),
		MaxVerdictBytes: cmp.Or(given.GetMaxVerdictBytes(), 4<<20),
		Peers:           given.GetPeers(),
		Capabilities:    given.GetCapabilities(),
		PingIntervalMs:  given.GetPingIntervalMs(),
		Hooks:           given.GetHooks(),
	}
	if w.Hooks != nil {
		return w
	}
	for _, offer := range hello.GetHooks() {
		w.Hooks = append(w.Hooks, &hostv1.HookState{
			Name: offer.GetName(), Stage: offer.GetStage(), State: hostv1.State_STATE_IN_ROTATION, Revision: w.Revision,
		})
	}
	return w
}

// Serve reads the host's frames until it sends no more. A Session answers nothing unless Serve runs.
func (s *Session) Serve() error {
	for {
		frame, err := s.stream.Recv()
		if err != nil {
			s.finish(err)
			return err
		}
		s.take(frame)
	}
}

func (s *Session) take(frame *hostv1.ConnectRequest) {
	switch f := frame.GetFrame().(type) {
	case *hostv1.ConnectRequest_Verdict:
		s.verdict(f.Verdict)
	case *hostv1.ConnectRequest_Verdicts:
		for _, v := range f.Verdicts.GetVerdicts() {
			s.verdict(v)
		}
	case *hostv1.ConnectRequest_Pong:
		s.answer(answerKey{kind: pongFrame, id: f.Pong.GetSeq()}, frame)
	case *hostv1.ConnectRequest_ProbeResult:
		s.answer(answerKey{kind: probeFrame, id: f.ProbeResult.GetSeq()}, frame)
	case *hostv1.ConnectRequest_Credit:
		s.mu.Lock()
		s.credit = f.Credit.GetMaxOutstanding()
		s.mu.Unlock()
	case *hostv1.ConnectRequest_Drain:
		s.noteDrain(f.Drain)
	}
}

func (s *Session) verdict(v *hostv1.Verdict) {
	s.answer(answerKey{verdictFrame, v.GetCallId(), v.GetHookIndex()},
		&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdict{Verdict: v}})
}

func (s *Session) answer(key answerKey, frame *hostv1.ConnectRequest) {
	s.mu.Lock()
	waiter := s.waiting[key]
	delete(s.waiting, key)
	s.mu.Unlock()
	if waiter != nil {
		waiter <- frame // It has room for one, and gets one.
	}
}

func (s *Session) noteDrain(drain *hostv1.HostDrain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drain == nil {
		s.drain = drain
		close(s.drained)
	}
}

func (s *Session) finish(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	close(s.ended)
}

// Hello is how the host introduced itself.
func (s *Session) Hello() *hostv1.Hello { return s.hello }

// Credit is how many calls the host takes on this session now.
func (s *Session) Credit() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.credit
}

// Send writes any frame to the host.
func (s *Session) Send(frame *hostv1.ConnectResponse) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.stream.Send(frame)
}

// Ask puts a request to one hook and returns how the call ended. The deadline of ctx, or Patience from now, is the call's
// and the host's to keep; when ctx is cancelled the call is. Either way the host still owes a verdict, and Ask
// returns that. An error means that there is none.
func (s *Session) Ask(ctx context.Context, hook string, request *admissionv1.AdmissionRequest) (*hostv1.Verdict, error) {
	stage, err := s.stageOf(hook)
	if err != nil {
		return nil, err
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, Patience)
		defer cancel()
	}
	call, err := s.Post(request, &hostv1.HookCall{
		Name: hook, Stage: stage, Configuration: "hosttest", RemainingMs: remaining(ctx),
	})
	if err != nil {
		return nil, err
	}
	verdicts, err := call.Wait(ctx)
	if err != nil {
		return nil, err
	}
	return verdicts[0], nil
}

// Call is a review that was sent and not yet answered in full.
type Call struct {
	session *Session
	id      uint64
	answers []<-chan *hostv1.ConnectRequest
}

// Post sends a request for several hooks, in one frame, or in chunks if it is large and the host takes them. The calls go
// as they are, with the time that they say is left.
func (s *Session) Post(request *admissionv1.AdmissionRequest, calls ...*hostv1.HookCall) (*Call, error) {
	s.posting.Lock() // Reviews go in the order of their ids.
	defer s.posting.Unlock()
	c := &Call{session: s, id: s.nextID()}
	for i := range calls {
		c.answers = append(c.answers, s.expect(answerKey{kind: verdictFrame, id: c.id, hook: uint32(i)}))
	}
	if err := s.review(&hostv1.Review{CallId: c.id, Hooks: calls, Request: request}); err != nil {
		return nil, fmt.Errorf("hosttest: sending the review: %w", err)
	}
	return c, nil
}

// review sends a review as dispatchers do: a large one in chunks, if the host takes them.
func (s *Session) review(r *hostv1.Review) error {
	if proto.Size(r) <= maxWhole || !slices.Contains(s.hello.GetCapabilities(), "chunks") {
		return s.Send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Review{Review: r}})
	}
	encoded, err := proto.Marshal(r)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(encoded, chunkBytes) {
		err := s.Send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Chunk{Chunk: &hostv1.Chunk{
			CallId: r.GetCallId(), TotalBytes: uint64(len(encoded)), Hooks: uint32(len(r.GetHooks())), Data: part,
		}}})
		if err != nil {
			return err
		}
	}
	return nil
}

// Wait waits for a verdict on each hook, in the order of the hooks. When ctx is cancelled so is the call, and the
// verdicts are still awaited. Once.
func (c *Call) Wait(ctx context.Context) ([]*hostv1.Verdict, error) {
	verdicts := make([]*hostv1.Verdict, len(c.answers))
	for i, answer := range c.answers {
		frame, err := c.verdict(ctx, answer)
		if err != nil {
			return nil, err
		}
		verdicts[i] = frame.GetVerdict()
	}
	return verdicts, nil
}

func (c *Call) verdict(ctx context.Context, answer <-chan *hostv1.ConnectRequest) (*hostv1.ConnectRequest, error) {
	select {
	case frame := <-answer:
		return frame, nil
	case <-c.session.ended:
		return c.session.last(answer)
	case <-ctx.Done():
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		cancel := &hostv1.ConnectResponse_Cancel{Cancel: &hostv1.Cancel{CallId: c.id}}
		if err := c.session.Send(&hostv1.ConnectResponse{Frame: cancel}); err != nil {
			return nil, fmt.Errorf("hosttest: sending the cancellation: %w", err)
		}
	}
	return c.session.await(context.WithoutCancel(ctx), answer)
}

// stageOf is the stage that the host offers a hook for.
func (s *Session) stageOf(hook string) (admissionv1.Stage, error) {
	var stage admissionv1.Stage
	for _, offer := range s.hello.GetHooks() {
		switch {
		case offer.GetName() != hook:
		case stage != admissionv1.Stage_STAGE_UNSPECIFIED:
			return 0, fmt.Errorf("hosttest: hook %q is offered for several stages: choose one with Post", hook)
		default:
			stage = offer.GetStage()
		}
	}
	if stage == admissionv1.Stage_STAGE_UNSPECIFIED {
		return 0, fmt.Errorf("hosttest: the host does not offer hook %q", hook)
	}
	return stage, nil
}

// remaining is the time until the deadline of ctx, as the contract counts it.
func remaining(ctx context.Context) uint32 {
	deadline, _ := ctx.Deadline()
	return wire.Milliseconds(time.Until(deadline))
}

// Ping asks for a sign of life and waits for it.
func (s *Session) Ping(ctx context.Context) error {
	id := s.nextID()
	answer := s.expect(answerKey{kind: pongFrame, id: id})
	err := s.Send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Ping{Ping: &hostv1.Ping{Seq: id}}})
	if err != nil {
		return fmt.Errorf("hosttest: sending the ping: %w", err)
	}
	_, err = s.await(ctx, answer)
	return err
}

// Probe asks whether a hook is ready.
func (s *Session) Probe(ctx context.Context, hook string) (*hostv1.ProbeResult, error) {
	id := s.nextID()
	answer := s.expect(answerKey{kind: probeFrame, id: id})
	err := s.Send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Probe{Probe: &hostv1.Probe{Seq: id, Hook: hook}}})
	if err != nil {
		return nil, fmt.Errorf("hosttest: sending the probe: %w", err)
	}
	frame, err := s.await(ctx, answer)
	return frame.GetProbeResult(), err
}

// Drained waits until the host drains.
func (s *Session) Drained(ctx context.Context) (*hostv1.HostDrain, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	select {
	case <-s.drained:
	case <-s.ended:
	case <-ctx.Done():
	}
	select {
	case <-s.drained: // whatever has happened since
		return s.drain, nil
	default:
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("hosttest: the host did not drain: %w", err)
	}
	return nil, fmt.Errorf("hosttest: the host left without a word: %w", s.err)
}

// Ended waits until the host sends no more: nil means that it closed its side, as it does after a drain.
func (s *Session) Ended(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	select {
	case <-s.ended:
	case <-ctx.Done():
		return fmt.Errorf("hosttest: the host did not leave: %w", ctx.Err())
	}
	if errors.Is(s.err, io.EOF) {
		return nil
	}
	return s.err
}

func (s *Session) nextID() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastID++
	return s.lastID
}

func (s *Session) expect(key answerKey) <-chan *hostv1.ConnectRequest {
	answer := make(chan *hostv1.ConnectRequest, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[key] = answer
	return answer
}

// await waits for an answer, no longer than Patience.
func (s *Session) await(ctx context.Context, answer <-chan *hostv1.ConnectRequest) (*hostv1.ConnectRequest, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	select {
	case frame := <-answer:
		return frame, nil
	case <-s.ended:
		return s.last(answer)
	case <-ctx.Done():
		return nil, fmt.Errorf("hosttest: the host does not answer: %w", ctx.Err())
	}
}

// last is the answer that came with the end, or why there is none.
func (s *Session) last(answer <-chan *hostv1.ConnectRequest) (*hostv1.ConnectRequest, error) {
	select {
	case frame := <-answer:
		return frame, nil
	default:
		return nil, fmt.Errorf("hosttest: the host left without an answer: %w", s.err)
	}
}
