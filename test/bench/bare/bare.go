// Package bare is the least that a host can be: it speaks the host protocol, finds out which call a frame belongs to, and
// allows. It decodes no review, runs no handler and keeps nothing, so that its figures are the dispatcher's and the
// wire's. The further cost of hosts made with hostsdk is the SDK's own part.
package bare

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

const (
	// maxOutstanding is more than the callers there are at a time times the hooks of a host.
	maxOutstanding = 1 << 15
	// maxFrameBytes is more than any review.
	maxFrameBytes = 64 << 20
	// window is the window of hosts made with hostsdk.
	window = 4 << 20
	// maxBatch is how many verdicts are in one frame.
	maxBatch = 64
)

// Options are the settings of a host.
type Options struct {
	// Address is the dispatcher's.
	Address string
	// TLS is how it is reached. It is not changed.
	TLS *tls.Config
	// Instance names the host; a second host of the same name takes its place.
	Instance string
	// Hooks are the names of the hooks that it offers.
	Hooks []string
	// Stage is the stage of all of them.
	Stage admissionv1.Stage
	// Ready is called once, when all of them are in rotation.
	Ready func()
	// Called is called with the number of calls of each frame that is answered; nil is nobody.
	Called func(calls int)
}

// Run connects, and serves until ctx ends, which is no error, or the dispatcher ends the session.
func Run(ctx context.Context, o Options) error {
	conn, err := grpc.NewClient("passthrough:///"+o.Address,
		grpc.WithTransportCredentials(credentials.NewTLS(o.TLS.Clone())), grpc.WithDisableRetry(), grpc.WithIdleTimeout(0),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window), grpc.WithSharedWriteBuffer(true),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxFrameBytes)))
	if err != nil {
		return fmt.Errorf("bare: %w", err)
	}
	defer conn.Close()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, hostv1.HostService_Connect_FullMethodName)
	if err != nil {
		return end(ctx, err)
	}
	s := &session{options: o, stream: stream}
	err = s.send(s.hello())
	for err == nil {
		err = s.next()
	}
	if errors.Is(err, io.EOF) { // of a sender: why the stream has ended, its reader is told
		err = stream.RecvMsg(&incoming{})
	}
	return end(ctx, err)
}

// end returns the meaning of the end of a stream.
func end(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil //nolint:nilerr // the end that was asked for
	}
	return fmt.Errorf("bare: %w", err)
}

// session is one stream. One goroutine reads a frame, answers it, and reads the next.
type session struct {
	options Options
	stream  grpc.ClientStream
	batches bool // the dispatcher takes Verdicts
	ready   bool
	partial partial

	// Of the frame at hand.
	calls    []call
	verdicts []verdict
}

// partial is the large review whose chunks come.
type partial struct {
	call   call
	missed int // bytes that have not come yet; 0 when no review is on its way
}

// hello introduces the host.
func (s *session) hello() *hostv1.ConnectRequest {
	hello := &hostv1.Hello{
		ProtocolMin: 1, ProtocolMax: 1, Host: "bare", Instance: s.options.Instance, MaxOutstanding: maxOutstanding,
		MaxFrameBytes: maxFrameBytes, Capabilities: []string{"batches", "chunks"},
	}
	for _, name := range s.options.Hooks {
		hello.Hooks = append(hello.Hooks, &hostv1.HookOffer{Name: name, Stage: s.options.Stage, Speculate: true})
	}
	return &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Hello{Hello: hello}}
}

// send sends a frame that is no verdict.
func (s *session) send(frame *hostv1.ConnectRequest) error {
	raw, err := proto.Marshal(frame)
	if err != nil {
		return err
	}
	return s.stream.SendMsg(raw)
}

// next reads a frame and answers it.
func (s *session) next() error {
	var in incoming
	if err := s.stream.RecvMsg(&in); err != nil {
		return err
	}
	s.calls = s.calls[:0]
	err := s.frame(in.bytes())
	in.free()
	if err != nil || len(s.calls) == 0 {
		return err
	}
	return s.answer()
}

// answer permits the calls, in as few frames as there can be.
func (s *session) answer() error {
	s.verdicts = s.verdicts[:0]
	for _, c := range s.calls {
		for i := range c.hooks {
			s.verdicts = append(s.verdicts, verdict{c.id, i})
		}
	}
	if s.options.Called != nil {
		s.options.Called(len(s.verdicts))
	}
	most := 1
	if s.batches {
		most = maxBatch
	}
	for part := range slices.Chunk(s.verdicts, most) {
		if err := s.stream.SendMsg(encode(part)); err != nil {
			return err
		}
	}
	return nil
}

// control answers a frame that carries no review.
func (s *session) control(raw []byte) error {
	frame := &hostv1.ConnectResponse{}
	if err := proto.Unmarshal(raw, frame); err != nil {
		return err
	}
	switch x := frame.GetFrame().(type) {
	case *hostv1.ConnectResponse_Welcome:
		for _, c := range x.Welcome.GetCapabilities() {
			s.batches = s.batches || c == "batches"
		}
		return s.welcomed(x.Welcome.GetHooks())
	case *hostv1.ConnectResponse_Ping:
		return s.send(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Pong{Pong: &hostv1.Pong{Seq: x.Ping.GetSeq()}}})
	case *hostv1.ConnectResponse_Probe:
		return s.send(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_ProbeResult{
			ProbeResult: &hostv1.ProbeResult{Seq: x.Probe.GetSeq(), Ready: true},
		}})
	case *hostv1.ConnectResponse_Cancel:
		if s.partial.missed > 0 && x.Cancel.GetCallId() == s.partial.call.id {
			s.calls = append(s.calls, s.partial.call)
			s.partial = partial{}
		}
	}
	return nil // an answered call needs no cancelling; a host that answers at once has nothing to drain
}

// welcomed looks whether all hooks are in rotation.
func (s *session) welcomed(hooks []*hostv1.HookState) error {
	for _, h := range hooks {
		if h.GetState() != hostv1.State_STATE_IN_ROTATION {
			return fmt.Errorf("hook %q is not in rotation: %s", h.GetName(), h.GetMessage())
		}
	}
	if !s.ready && s.options.Ready != nil {
		s.options.Ready()
	}
	s.ready = true
	return nil
}
