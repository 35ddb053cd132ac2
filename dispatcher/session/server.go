package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/session/pool"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// Reasons for which a session is refused.
var (
	errTooMany          = errors.New("the dispatcher has too many sessions, or as many of this identity as it leaves free for others")
	errTooManyUngranted = errors.New("the dispatcher has too many sessions of identities without hooks")
)

// Identify returns the channel of a stream, from its context: it knows the peer's identity.
type Identify func(ctx context.Context) identity.Channel

// Server is the gRPC edge for hosts. It turns streams into sessions of a router.
type Server struct {
	hostv1.UnimplementedHostServiceServer

	router     *Router
	identify   Identify
	goroutines sync.WaitGroup
}

// NewServer makes the edge of a router. identify is for the streams of gRPC.
func NewServer(r *Router, identify Identify) *Server {
	return &Server{router: r, identify: identify}
}

const (
	// readBufferBytes is the buffer that each connection of a host keeps for reading, behind the buffer of TLS.
	readBufferBytes = 512
	// writeBufferBytes is how much is gathered before it is written. gRPC takes twice as much for it while there is something
	// to write.
	writeBufferBytes = 16 << 10
	// windowBytes is how much a host may send before it is read.
	windowBytes = 1 << 20
)

// ServerOptions are the settings of a gRPC server for hosts, each with its reason. TLS comes beside them.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		// Review frames are slices that are shared between hosts.
		grpc.ForceServerCodecV2(stream.Codec()),
		// Hosts send verdicts alone. The codec holds them to it where a server takes larger messages from others.
		grpc.MaxRecvMsgSize(stream.MaxVerdictBytes),
		// Reviews are as large as the API server makes them; a host names its own limit in Hello.
		grpc.MaxSendMsgSize(1 << 30),
		// Liveness is ours: any frame counts. Transport pings only find connections whose peer vanished without a word
		// before Hello.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
		// Hosts behind NAT may ping as often as SDKs do by default.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		// Thousands of sessions are silent most of the time. Frames of hosts are small, and a frame larger than the buffer is
		// read past it. Writes are gathered, up to a TLS record, in buffers that connections share.
		grpc.ReadBufferSize(readBufferBytes),
		grpc.WriteBufferSize(writeBufferBytes),
		grpc.SharedWriteBuffer(true),
		// Windows of a fixed size: to find one, gRPC answers every frame with a ping of its own, which for a session at rest is
		// as much again. And hosts need no table of the headers of the one stream that they have.
		grpc.StaticStreamWindowSize(windowBytes),
		grpc.StaticConnWindowSize(windowBytes),
		grpc.HeaderTableSize(0),
		// A session ends its stream while it reads.
		grpc.InTapHandle(endable),
		// One host needs two streams at most, and health checks.
		grpc.MaxConcurrentStreams(16),
		grpc.ConnectionTimeout(HelloTimeout),
		// Stop returns when no stream can start goroutines any more: Wait is called behind it.
		grpc.WaitForHandlers(true),
	}
}

// Connect implements HostService.
func (s *Server) Connect(of grpc.BidiStreamingServer[hostv1.ConnectRequest, hostv1.ConnectResponse]) error {
	end, ok := of.Context().Value(ending{}).(context.CancelFunc)
	if !ok {
		return status.Error(codes.Internal, "the gRPC server has to be made with session.ServerOptions")
	}
	return s.Serve(stream.OverGRPC(of, end), s.identify(of.Context()))
}

// ending is the key of the function that ends a stream, in its context.
type ending struct{}

// endable lets the context of a stream be ended on our side: gRPC does so only when the handler returns, which is waiting
// for a frame.
func endable(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, end := context.WithCancel(ctx)
	return context.WithValue(ctx, ending{}, end), nil
}

// Serve serves one stream of a host until it ends, which frees the stream's goroutines. The channel is asked who the host is
// when the stream begins, and again while it lasts. The error is a status for the host; nil is a clean end.
func (s *Server) Serve(of stream.Stream, channel identity.Channel) error {
	host, err := channel.Identity()
	if err != nil {
		return status.Errorf(codes.Unauthenticated, "a host has to present a client certificate with an identity: %v", err)
	}
	hello, err := s.hello(of)
	if err != nil {
		return err
	}
	session := newSession(s.router, host, hello, stream.Options{
		ID: uuid.NewString(), Channel: channel, Traffic: stream.TrafficOf(of.Context()),
	})
	if err := s.router.addSession(session, pool.OffersOf(hello)); err != nil {
		return statusOf(err)
	}
	log := s.router.log.With("host", hello.GetHost(), "instance", hello.GetInstance(), "identity", host.Name())
	log.Info("host connected", "hooks", len(hello.GetHooks()), "sdk", hello.GetSdk(), "session", session.ID())
	err = session.Serve(of, &s.goroutines)
	s.router.removeSession(session)
	s.router.metrics.ended.WithLabelValues(stream.CauseLabel(err)).Inc()
	log.Info("host disconnected", "session", session.ID(), "cause", err)
	return statusOf(err)
}

// Wait returns when the goroutines of all streams have ended. The transport has to be stopped first.
func (s *Server) Wait() { s.goroutines.Wait() }

// hello waits for the first frame and checks it. Another goroutine reads: the host gets the reason for the end, which gRPC
// does not send where its handler was reading.
func (s *Server) hello(of stream.Stream) (*hostv1.Hello, error) {
	type first struct {
		hello *hostv1.Hello
		err   error
	}
	got := make(chan first, 1)
	s.goroutines.Go(func() {
		in, err := of.Recv()
		if err != nil {
			got <- first{err: err}
			return
		}
		got <- first{hello: in.Hello()}
	})
	timer := time.NewTimer(HelloTimeout)
	defer timer.Stop()
	select {
	case f := <-got:
		if f.err != nil {
			return nil, statusOf(f.err)
		}
		return f.hello, checkHello(f.hello)
	case <-timer.C:
		return nil, status.Errorf(codes.InvalidArgument, "no Hello within %s", HelloTimeout)
	}
}

// checkHello returns the error of a bad first frame.
func checkHello(h *hostv1.Hello) error {
	switch {
	case h == nil:
		return status.Error(codes.InvalidArgument, "the first frame has to be Hello")
	case h.GetProtocolMin() > Protocol || h.GetProtocolMax() < Protocol:
		return status.Errorf(codes.FailedPrecondition, "the host speaks protocol %d to %d, this dispatcher %d",
			h.GetProtocolMin(), h.GetProtocolMax(), Protocol)
	case h.GetInstance() == "" || h.GetHost() == "":
		return status.Error(codes.InvalidArgument, "Hello needs host and instance")
	case len(h.GetHooks()) == 0:
		return status.Error(codes.InvalidArgument, "Hello offers no hooks")
	case len(h.GetCapabilities()) > MaxCapabilities:
		return status.Errorf(codes.ResourceExhausted, "Hello names %d capabilities, at most %d are taken",
			len(h.GetCapabilities()), MaxCapabilities)
	case len(h.GetHooks()) > MaxOffers:
		return status.Errorf(codes.ResourceExhausted, "Hello offers %d hooks, at most %d are taken", len(h.GetHooks()), MaxOffers)
	case h.GetLane() != 0 || h.GetJoinSession() != "":
		return status.Error(codes.FailedPrecondition, "this dispatcher serves one lane only")
	case len(h.GetClusters()) > MaxOffers:
		return status.Errorf(codes.ResourceExhausted, "Hello names %d clusters, at most %d are taken", len(h.GetClusters()), MaxOffers)
	case slices.ContainsFunc(names(h), func(name string) bool { return len(name) > MaxNameBytes }):
		return status.Errorf(codes.InvalidArgument, "a name in Hello is longer than %d bytes", MaxNameBytes)
	}
	return nil
}

func names(h *hostv1.Hello) []string {
	out := append([]string{h.GetInstance(), h.GetHost(), h.GetSdk(), h.GetSdkVersion(), h.GetZone()}, h.GetClusters()...)
	out = append(out, h.GetCapabilities()...)
	for _, o := range h.GetHooks() {
		out = append(out, o.GetName())
	}
	return out
}

// statusOf is the end of a session as the host sees it.
func statusOf(err error) error {
	switch {
	case errors.Is(err, ErrClosed):
		return status.Error(codes.Unavailable, "the dispatcher is stopping")
	case errors.Is(err, errTooMany), errors.Is(err, errTooManyUngranted):
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return stream.StatusOf(err)
}
