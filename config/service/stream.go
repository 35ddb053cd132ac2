package service

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
)

const (
	// DefaultSendTimeout is how long a reader of a stream may take for a message.
	DefaultSendTimeout = 30 * time.Second
	// MaxStreams bounds the streams of Watch and Wait that are served at a time; one identity has no more of them than it leaves
	// free for the others. Each reads the store about once a second.
	MaxStreams = 200
)

// errStopping ends streams when the process stops.
var errStopping = status.Error(codes.Unavailable, "this dispatcher is stopping: ask again, another one answers")

// streams are the open streams of a service. Its methods may be called concurrently.
type streams struct {
	timeout time.Duration
	open    *memory.Ledger // by identity

	mu       sync.Mutex
	stopping chan struct{}
	stopped  bool
}

// open admits a stream of who may read. end has to be called when it is over.
func (s *Service) open(ctx context.Context) (end func(), err error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if _, err := s.view(ctx); err != nil {
		return nil, err
	}
	return s.streams.begin(s.o.Identity(ctx).Name())
}

// begin admits a stream of an identity. end has to be called when it is over.
func (s *streams) begin(identity string) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, errStopping
	}
	lease, err := s.open.Reserve(identity, 1)
	if err != nil {
		return nil, status.Errorf(codes.ResourceExhausted, "too many streams of %q are open: end some, or ask another dispatcher", identity)
	}
	return lease.Release, nil
}

// stop ends all streams, and refuses new ones.
func (s *streams) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped = true
		close(s.stopping)
	}
}

// post sends a message, and gives up on a reader who does not take it: one that has stopped reading must not hold what it
// was sent for ever. The goroutine ends with the stream, which ends when its method returns or its context does.
func post[T any](s *streams, stream grpc.ServerStreamingServer[T], m *T) error {
	sent := make(chan error, 1)
	go func() { sent <- stream.Send(m) }()
	late := time.NewTimer(s.timeout)
	defer late.Stop()
	select {
	case err := <-sent:
		return err
	case <-late.C:
		return status.Errorf(codes.Aborted, "a message was not read within %v: begin again, and read faster", s.timeout)
	}
}

// next waits for news, and is an error when the stream is to end instead.
func next[T any](ctx context.Context, s *streams, news <-chan T) error {
	select {
	case <-news:
		return nil
	case <-s.stopping:
		return errStopping
	case <-ctx.Done():
		return ended(ctx)
	}
}

// ended says why a stream has ended whose caller has gone or does not wait any longer.
func ended(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() }

// overdue is ended, for who has waited for dispatchers.
func overdue(ctx context.Context, behind []string) error {
	switch {
	case !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return ended(ctx)
	case len(behind) == 0:
		return status.Error(codes.DeadlineExceeded, "no dispatcher says that it lives: look whether any runs and reaches the store")
	}
	return status.Errorf(codes.DeadlineExceeded, "still waiting for %s: `portcullis get dispatchers` shows how far they are", strings.Join(behind, ", "))
}
