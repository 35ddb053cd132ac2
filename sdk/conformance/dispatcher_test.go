package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// scripted is a dispatcher that follows a case, byte for byte if need be, and notes each frame of its hosts.
type scripted struct {
	*stage

	addr     string
	options  scriptedOptions
	server   *grpc.Server
	sessions record[*session]
	dials    record[time.Time] // streams that hosts opened, refused ones too

	accepted int // sessions that the case has taken
}

type scriptedOptions struct {
	addr  string                           // to listen at; empty means a free port
	creds credentials.TransportCredentials // nil means none
	// refuse is the end of a stream that is not let in; nil lets it in. It is called for each stream, counted from 1.
	refuse func(n int) error
	// endless leaves the stream open when the host has closed its side.
	endless bool
}

// dispatcher starts a scripted dispatcher, which ends with the case.
func (s *stage) dispatcher(o scriptedOptions) *scripted {
	s.Helper()
	d := &scripted{stage: s, options: o}
	lis := s.listen(o.addr)
	d.addr = lis.Addr().String()
	creds := o.creds
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	d.server = grpc.NewServer(grpc.Creds(creds), grpc.ForceServerCodecV2(rawCodec{}), grpc.MaxRecvMsgSize(64<<20),
		grpc.WaitForHandlers(true))
	d.server.RegisterService(&grpc.ServiceDesc{
		ServiceName: hostv1.HostService_ServiceDesc.ServiceName, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: "Connect", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error { return d.connect(stream) },
		}},
	}, d)
	served := make(chan struct{})
	go func() { // Waited for by the cleanup.
		defer close(served)
		_ = d.server.Serve(lis) // It ends by Stop.
	}()
	s.Cleanup(func() {
		d.kill()
		<-served
		for _, x := range d.sessions.all() {
			<-x.read
		}
	})
	return d
}

// listen listens at an address of a dispatcher that has ended; empty means a port that nothing else gets when the dispatcher has ended.
func (s *stage) listen(addr string) net.Listener {
	s.Helper()
	if addr == "" {
		return must[net.Listener](s)(citest.Listen())
	}
	return must[net.Listener](s)((&net.ListenConfig{}).Listen(s.Context(), "tcp", addr))
}

// kill breaks all connections, as the death of a dispatcher does.
func (d *scripted) kill() { d.server.Stop() }

// connect is the gRPC edge.
func (d *scripted) connect(stream grpc.ServerStream) error {
	d.dials.add(time.Now())
	if d.options.refuse != nil {
		if err := d.options.refuse(len(d.dials.all())); err != nil {
			return err
		}
	}
	s := &session{
		stage: d.stage, stream: stream, end: make(chan error, 1), read: make(chan struct{}), reading: make(chan struct{}, 1),
		verdicts: map[pair]*hostv1.Verdict{}, asked: map[uint64]uint32{},
	}
	s.identity = identityOf(stream.Context())
	s.reading <- struct{}{}
	go s.listen() // Ends with the stream; waited for by read.
	select {
	case <-s.read: // without a Hello
		return nil
	case <-s.helloCame():
	}
	d.sessions.add(s)
	select {
	case err := <-s.end:
		return err
	case <-s.read:
		if d.options.endless {
			<-stream.Context().Done()
		}
		return nil
	}
}

func identityOf(ctx context.Context) string {
	p, _ := peer.FromContext(ctx)
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
		if who, ok := identity.FromTLS(&info.State); ok {
			return who.Name()
		}
	}
	return ""
}

// next waits for a host's next session, which has not been welcomed.
func (d *scripted) next() *session {
	d.Helper()
	n, gone := d.accepted, (<-chan struct{})(nil)
	if d.latest != nil {
		gone = d.latest.exited
	}
	if !d.sessions.await(d.Context(), gone, func(all []*session) bool { return len(all) > n }) {
		d.Fatalf("no host has opened session %d with the dispatcher %s", n+1, d.addr)
	}
	d.accepted++
	return d.sessions.all()[n]
}

// accept waits for a host's next session and welcomes it.
func (d *scripted) accept(change ...func(w *hostv1.Welcome)) *session {
	d.Helper()
	s := d.next()
	s.welcome(append([]func(w *hostv1.Welcome){func(w *hostv1.Welcome) { w.DispatcherId = "at " + d.addr }}, change...)...)
	return s
}

// session is one session with a host. The case asks, and the reader of the stream notes the answers.
type session struct {
	*stage

	stream   grpc.ServerStream
	identity string
	end      chan error    // ends the stream with a status
	read     chan struct{} // closed with err set, when the host sends no more
	err      error
	reading  chan struct{} // holds a token; without it the reader stops
	frames   record[*hostv1.ConnectRequest]

	writing sync.Mutex

	mu       sync.Mutex
	hello    *hostv1.Hello
	verdicts map[pair]*hostv1.Verdict
	order    []pair            // of the verdicts
	asked    map[uint64]uint32 // how many hooks each review asked
	batched  int               // verdicts that came together with others
	limit    int               // of a frame with verdicts; 0 is none
	batches  bool              // the welcome allows frames with several verdicts
	lastID   uint64
}

// pair is one call of one hook.
type pair struct {
	call uint64
	hook uint32
}

func (s *session) helloCame() <-chan struct{} {
	came := make(chan struct{})
	go func() {
		s.frames.await(context.WithoutCancel(s.stream.Context()), s.read, func(f []*hostv1.ConnectRequest) bool { return len(f) > 0 })
		close(came)
	}()
	return came
}

// listen reads the host's frames.
func (s *session) listen() {
	defer close(s.read)
	for {
		select {
		case token := <-s.reading:
			s.reading <- token
		case <-s.stream.Context().Done():
		}
		var raw []byte
		if err := s.stream.RecvMsg(&raw); err != nil {
			s.err = err
			return
		}
		frame := &hostv1.ConnectRequest{}
		if err := proto.Unmarshal(raw, frame); err != nil {
			s.Errorf("the host sent a frame that cannot be read: %v", err)
			continue
		}
		s.note(frame, len(raw))
		s.frames.add(frame)
	}
}

// note checks the rules for every frame, in every case.
func (s *session) note(frame *hostv1.ConnectRequest, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.hello == nil
	switch f := frame.GetFrame().(type) {
	case *hostv1.ConnectRequest_Hello:
		if !first {
			s.Error("the host said Hello twice")
		}
		s.hello = f.Hello
		return
	case *hostv1.ConnectRequest_Verdict:
		s.noteVerdictsLocked(size, f.Verdict)
	case *hostv1.ConnectRequest_Verdicts:
		if n := len(f.Verdicts.GetVerdicts()); !s.batches || n > 64 || n > 1 && size > 64<<10 {
			s.Errorf("the host sent %d verdicts of %d bytes in one frame; the dispatcher takes several: %t", n, size, s.batches)
		}
		s.batched += len(f.Verdicts.GetVerdicts())
		s.noteVerdictsLocked(size, f.Verdicts.GetVerdicts()...)
	case nil:
		s.Error("the host sent a frame of a type that there is not")
	}
	if first {
		s.Errorf("the first frame of the host is not Hello: %v", frame)
		s.hello = &hostv1.Hello{}
	}
}

func (s *session) noteVerdictsLocked(size int, verdicts ...*hostv1.Verdict) {
	if s.limit > 0 && size > s.limit {
		s.Errorf("the host sent a frame with verdicts of %d bytes, the dispatcher takes %d", size, s.limit)
	}
	for _, v := range verdicts {
		at := pair{v.GetCallId(), v.GetHookIndex()}
		switch hooks, asked := s.asked[at.call]; {
		case !asked || at.hook >= hooks:
			s.Errorf("the host sent a verdict about hook %d of call %d, which was not asked", at.hook, at.call)
		case s.verdicts[at] != nil:
			s.Errorf("the host sent a second verdict about hook %d of call %d: %v behind %v", at.hook, at.call, v, s.verdicts[at])
		case v.GetOutcome() == nil:
			s.Errorf("the verdict about hook %d of call %d has no outcome", at.hook, at.call)
		}
		s.verdicts[at] = v
		s.order = append(s.order, at)
	}
}

// welcome accepts the host: with all features, patience, and every hook in rotation, unless change says otherwise.
func (s *session) welcome(change ...func(w *hostv1.Welcome)) {
	s.Helper()
	w := &hostv1.Welcome{
		SessionId: fmt.Sprintf("session %p", s), DispatcherId: "conformance", Protocol: 1, Revision: "r1",
		PingIntervalMs: 1000, SilenceMs: math.MaxInt32, MaxVerdictBytes: 4 << 20, Capabilities: []string{"batches", "chunks"},
	}
	for _, offer := range s.hello.GetHooks() {
		w.Hooks = append(w.Hooks, state(offer, hostv1.State_STATE_IN_ROTATION))
	}
	for _, f := range change {
		f(w)
	}
	s.mu.Lock()
	s.limit, s.batches = int(w.GetMaxVerdictBytes()), slices.Contains(w.GetCapabilities(), "batches")
	s.mu.Unlock()
	s.send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Welcome{Welcome: w}})
}

func state(offer *hostv1.HookOffer, state hostv1.State) *hostv1.HookState {
	return &hostv1.HookState{Name: offer.GetName(), Stage: offer.GetStage(), State: state, Revision: "r1"}
}

// send writes a frame, and ends the case if the host has left.
func (s *session) send(frame *hostv1.ConnectResponse) {
	s.Helper()
	s.check(s.trySend(must[[]byte](s.stage)(proto.Marshal(frame))))
}

// trySend writes any bytes as a frame.
func (s *session) trySend(raw []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.stream.SendMsg(&raw); err != nil {
		return fmt.Errorf("the host has left: %w", err)
	}
	return nil
}

// live sends signs of life, so that the host stays whatever time the case takes, until stop is called or the case ends.
func (s *session) live() (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-over:
				return
			}
			if s.trySend(futureFrame()) != nil {
				return
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		close(over)
		<-ended
	})
	s.Cleanup(stop)
	return stop
}

// newID is the id of a review that asks so many hooks.
func (s *session) newID(hooks int) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastID++
	s.asked[s.lastID] = uint32(hooks)
	return s.lastID
}

// newReview is a review with the next id.
func (s *session) newReview(request *admissionv1.AdmissionRequest, calls ...*hostv1.HookCall) *hostv1.Review {
	return &hostv1.Review{CallId: s.newID(len(calls)), Hooks: calls, Request: request}
}

// post sends a review whole, and returns its id.
func (s *session) post(request *admissionv1.AdmissionRequest, calls ...*hostv1.HookCall) uint64 {
	s.Helper()
	r := s.newReview(request, calls...)
	s.sendReview(r)
	return r.GetCallId()
}

func (s *session) sendReview(r *hostv1.Review) {
	s.Helper()
	s.send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Review{Review: r}})
}

// ask sends a review for one hook and waits for its verdict.
func (s *session) ask(request *admissionv1.AdmissionRequest, call *hostv1.HookCall) *hostv1.Verdict {
	s.Helper()
	return s.verdict(s.post(request, call), 0)
}

// works asks the validating hook something, which shows that the session is alive.
func (s *session) works() {
	s.Helper()
	allowed(s.stage, s.ask(pod(`{}`), call(validating)))
}

// verdict waits for the verdict of a hook.
func (s *session) verdict(id uint64, hook uint32) *hostv1.Verdict {
	s.Helper()
	s.await(fmt.Sprintf("a verdict about hook %d of call %d", hook, id), func([]*hostv1.ConnectRequest) bool { return s.have(id, hook) != nil })
	return s.have(id, hook)
}

// have is the verdict of a hook, if it has come.
func (s *session) have(id uint64, hook uint32) *hostv1.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verdicts[pair{id, hook}]
}

// none fails if a verdict has come.
func (s *session) none(id uint64, hook uint32) {
	s.Helper()
	if v := s.have(id, hook); v != nil {
		s.Errorf("hook %d of call %d has a verdict already: %v", hook, id, v)
	}
}

// answered waits until so many verdicts have come in all.
func (s *session) answered(n int) {
	s.Helper()
	s.await(fmt.Sprintf("%d verdicts", n), func([]*hostv1.ConnectRequest) bool { return len(s.verdictOrder()) >= n })
}

func (s *session) verdictOrder() []pair {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clip(s.order)
}

// await waits until the frames of the host are as wanted. The end of the session ends the case.
func (s *session) await(what string, done func(frames []*hostv1.ConnectRequest) bool) {
	s.Helper()
	if !s.frames.await(s.Context(), s.read, done) {
		frames := s.frames.all()
		s.Fatalf("waited in vain for %s; the last of %d frames are %v, and the session: %v", what, len(frames), lastOf(frames, 5), s.ending())
	}
}

// ending is why the host sends no more.
func (s *session) ending() error {
	select {
	case <-s.read:
		return s.err
	default:
		return errors.New("lasts")
	}
}

// ping asks for a sign of life and waits for it. The host has read all frames before it then.
func (s *session) ping() {
	s.Helper()
	seq := s.newID(0)
	s.send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Ping{Ping: &hostv1.Ping{Seq: seq}}})
	s.await(fmt.Sprintf("Pong %d", seq), func(frames []*hostv1.ConnectRequest) bool {
		return slices.ContainsFunc(frames, func(f *hostv1.ConnectRequest) bool { return f.GetPong() != nil && f.GetPong().GetSeq() == seq })
	})
}

// probe asks whether a hook is ready.
func (s *session) probe(hook string) (result *hostv1.ProbeResult) {
	s.Helper()
	seq := s.newID(0)
	s.send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Probe{Probe: &hostv1.Probe{Seq: seq, Hook: hook}}})
	s.await(fmt.Sprintf("the answer to probe %d", seq), func(frames []*hostv1.ConnectRequest) bool {
		for _, f := range frames {
			if f.GetProbeResult().GetSeq() == seq {
				result = f.GetProbeResult()
			}
		}
		return result != nil
	})
	return result
}

func (s *session) cancel(id uint64, hooks ...uint32) {
	s.Helper()
	s.send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Cancel{Cancel: &hostv1.Cancel{CallId: id, HookIndexes: hooks}}})
}

func (s *session) hookState(h *hostv1.HookState) {
	s.Helper()
	s.send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_HookState{HookState: h}})
}

// drainHost tells the host that the dispatcher leaves.
func (s *session) drainHost(grace time.Duration, peers ...*hostv1.Peer) {
	s.Helper()
	s.send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Drain{
		Drain: &hostv1.DispatcherDrain{GraceMs: uint32(grace.Milliseconds()), Peers: peers},
	}})
}

// credit is how many calls the host takes on this session, as it said last.
func (s *session) credit() int {
	credit := s.hello.GetMaxOutstanding()
	for _, f := range s.frames.all() {
		if f.GetCredit() != nil {
			credit = f.GetCredit().GetMaxOutstanding()
		}
	}
	return int(credit)
}

func (s *session) creditBecomes(n int) {
	s.Helper()
	s.await(fmt.Sprintf("a credit of %d, which is %d", n, s.credit()), func([]*hostv1.ConnectRequest) bool { return s.credit() == n })
}

// draining waits for HostDrain.
func (s *session) draining() (drain *hostv1.HostDrain) {
	s.Helper()
	s.await("HostDrain", func(frames []*hostv1.ConnectRequest) bool {
		for _, f := range frames {
			if f.GetDrain() != nil {
				drain = f.GetDrain()
			}
		}
		return drain != nil
	})
	return drain
}

// finish ends the stream with a status.
func (s *session) finish(code codes.Code, why string) { s.end <- status.Error(code, why) }

// over waits until the host sends no more.
func (s *session) over() error {
	s.Helper()
	select {
	case <-s.read:
		return s.err
	case <-time.After(*patience):
		s.Fatalf("the host does not end the session; its last frames are %v", lastOf(s.frames.all(), 5))
		return nil
	}
}

// closedCleanly waits until the host has closed its side.
func (s *session) closedCleanly() {
	s.Helper()
	if err := s.over(); !errors.Is(err, io.EOF) {
		s.Errorf("the session ended by %v, want that the host closes its side", err)
	}
}

// lasts fails if the session has ended.
func (s *session) lasts() {
	s.Helper()
	select {
	case <-s.read:
		s.Errorf("the host has ended the session: %v", s.err)
	default:
	}
}

// rawCodec passes frames on as bytes.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	frame, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("%T is not a frame", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*frame)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	frame, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T is not a frame", v)
	}
	*frame = data.Materialize()
	return nil
}

func (rawCodec) Name() string { return "proto" }
