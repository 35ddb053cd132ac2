package hosttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// Listener is a fake dispatcher that hosts dial.
type Listener struct {
	// Addr is where it listens, ip:port.
	Addr string

	server   *grpc.Server
	welcome  *hostv1.Welcome
	sessions chan *Session
}

// ListenOptions are the options of [Listen]. The zero value is good for most tests.
type ListenOptions struct {
	// Welcome is the answer to hosts, see [Accept]; nil is a plain welcome.
	Welcome *hostv1.Welcome
	// Listener to serve on, which the Listener closes; nil means a free port of 127.0.0.1.
	Listener net.Listener
	// Server options, for example credentials; the default is a server without TLS.
	Server []grpc.ServerOption
}

// maxUnaccepted is how many sessions wait for Accept; further hosts are refused.
const maxUnaccepted = 64

// Listen serves hosts over gRPC until the end of the test.
func Listen(t testing.TB, o ListenOptions) *Listener {
	t.Helper()
	l, stop, err := listen(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return l
}

func listen(ctx context.Context, o ListenOptions) (*Listener, func(), error) {
	lis := o.Listener
	if lis == nil {
		var err error
		if lis, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
			return nil, nil, fmt.Errorf("hosttest: %w", err)
		}
	}
	options := append([]grpc.ServerOption{grpc.Creds(insecure.NewCredentials())}, o.Server...)
	l := &Listener{
		Addr:     lis.Addr().String(),
		server:   grpc.NewServer(options...),
		welcome:  o.Welcome,
		sessions: make(chan *Session, maxUnaccepted),
	}
	hostv1.RegisterHostServiceServer(l.server, &hostService{listener: l})
	served := make(chan struct{})
	go func() { // Waited for by stop.
		defer close(served)
		_ = l.server.Serve(lis) // It ends by Stop.
	}()
	return l, func() { l.server.Stop(); <-served }, nil
}

// Accept waits for the next host.
func (l *Listener) Accept(ctx context.Context) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	select {
	case s := <-l.sessions:
		return s, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("hosttest: no host has connected: %w", ctx.Err())
	}
}

// Stop breaks all sessions, as the death of a dispatcher does. A Listener does not come back.
func (l *Listener) Stop() { l.server.Stop() }

// hostService is the gRPC edge of a Listener.
type hostService struct {
	hostv1.UnimplementedHostServiceServer
	listener *Listener
}

// Connect implements the service: it serves one session, and ends the stream when the host has closed its side.
func (h *hostService) Connect(stream grpc.BidiStreamingServer[hostv1.ConnectRequest, hostv1.ConnectResponse]) error {
	s, err := Accept(stream, h.listener.welcome)
	if err != nil {
		return err
	}
	select {
	case h.listener.sessions <- s:
	default:
		return errors.New("hosttest: nothing accepts sessions")
	}
	if err := s.Serve(); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
