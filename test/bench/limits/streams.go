// Package limits is the upper bound of the speed: the same bytes over the same kinds of connections, without reading them.
//
// [Streams] is the limit of the fan-out: a frame with the encoded review to each host over a gRPC stream, and an answer of
// a verdict's size. [RoundTrip] is the limit of the JSON edge.
package limits

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"

	"github.com/portcullis-mesh/portcullis/internal/wire"
	"github.com/portcullis-mesh/portcullis/test/bench/pki"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

const (
	// verdictBytes is the size of the frame of a permission.
	verdictBytes = 24
	// maxFrameBytes is more than any review.
	maxFrameBytes = 64 << 20
	// window is the window of hosts made with hostsdk: with gRPC's own, frames would wait for it.
	window = 4 << 20
	// maxPending is how many frames may be unanswered on a stream: more than there are callers at a time.
	maxPending = 4096
	// method is the method of the echo service.
	method = "/bench.Echo/Connect"
)

// Streams is a server to which hosts have dialled, each with one stream. Close ends it.
type Streams struct {
	server  *grpc.Server
	frame   mem.BufferSlice
	joined  chan *stream
	streams []*stream
	hosts   []*grpc.ClientConn
	running errgroup.Group
}

// StartStreams starts the server and as many hosts as the scenario has.
func StartStreams(ctx context.Context, s scenario.Scenario, keys *pki.PKI) (*Streams, error) {
	request, err := s.Request()
	if err != nil {
		return nil, err
	}
	x := &Streams{joined: make(chan *stream, s.Hosts), server: grpc.NewServer(
		grpc.Creds(credentials.NewTLS(keys.Server("h2"))), grpc.ForceServerCodecV2(codec{}), grpc.WaitForHandlers(true),
	)}
	for _, b := range wire.EncodeBody(request, trace.SpanContext{}).Buffers() {
		x.frame = append(x.frame, mem.SliceBuffer(b))
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	x.server.RegisterService(&grpc.ServiceDesc{ServiceName: "bench.Echo", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{
		{StreamName: "Connect", Handler: x.connect, ServerStreams: true, ClientStreams: true},
	}}, x)
	x.running.Go(func() error { return x.server.Serve(listener) })
	for range s.Hosts {
		if err := x.dial(ctx, listener.Addr().String(), keys, s.Hooks/s.Hosts); err != nil {
			return nil, errors.Join(fmt.Errorf("limits: %w", err), x.Close())
		}
	}
	return x, nil
}

// dial starts a host, which answers each frame with the verdicts of its hooks.
func (x *Streams) dial(ctx context.Context, address string, keys *pki.PKI, hooks int) error {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(keys.Client())),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxFrameBytes)))
	if err != nil {
		return err
	}
	x.hosts = append(x.hosts, conn)
	host, err := conn.NewStream(context.WithoutCancel(ctx), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	answer := mem.BufferSlice{mem.SliceBuffer(make([]byte, verdictBytes*hooks))}
	x.running.Go(func() error {
		for host.RecvMsg(nil) == nil && host.SendMsg(answer) == nil {
		}
		return nil
	})
	select {
	case joined := <-x.joined:
		x.streams = append(x.streams, joined)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// connect serves the stream of a host until it ends.
func (x *Streams) connect(_ any, s grpc.ServerStream) error {
	joined := &stream{ServerStream: s, pending: make(chan chan<- error, maxPending)}
	x.joined <- joined
	return joined.read()
}

// Review sends the frame to all hosts and waits for their answers.
func (x *Streams) Review(ctx context.Context) error {
	answers := make(chan error, len(x.streams))
	for _, s := range x.streams {
		s.send(x.frame, answers)
	}
	for range x.streams {
		select {
		case err := <-answers:
			if err != nil {
				return fmt.Errorf("limits: %w", err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Close ends the hosts and the server.
func (x *Streams) Close() error {
	for _, h := range x.hosts {
		_ = h.Close()
	}
	x.server.Stop()
	return x.running.Wait()
}

// stream is one host at the server. Answers come in the order of the frames.
type stream struct {
	grpc.ServerStream

	pending chan chan<- error

	mu     sync.Mutex // sending: pending has the order of frames
	closed error
}

// send sends a frame; its result goes to answer, which has room.
func (s *stream) send(frame mem.BufferSlice, answer chan<- error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		answer <- s.closed
		return
	}
	s.pending <- answer
	_ = s.SendMsg(frame) // its failure is the end of the stream, which read sees
}

// read hands out answers until the stream ends.
func (s *stream) read() error {
	for {
		err := s.RecvMsg(nil)
		if err != nil {
			return s.end(err)
		}
		(<-s.pending) <- nil
	}
}

// end passes an error to every waiting sender, and returns the host's error.
func (s *stream) end(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = err
	for len(s.pending) > 0 {
		(<-s.pending) <- err
	}
	return nil
}
