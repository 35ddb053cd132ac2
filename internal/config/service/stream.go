package service

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// MaxStreams bounds the open streams of Watch and Wait; one identity has no more of them than it leaves free for the others.
	// Each reads the store about once a second.
	MaxStreams = 200
	// sendTimeout is how long a reader of a stream may take for a message before its stream ends with ABORTED.
	sendTimeout = 30 * time.Second
)

var errStopping = status.Error(codes.Unavailable, "this dispatcher is stopping: ask again, another one answers")

// openStream admits a stream. end has to be called when it is over.
func (s *Service) openStream(ctx context.Context) (end func(), err error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave() // a stream is counted among the streams
	select {
	case <-s.stopping:
		return nil, errStopping
	default:
	}
	who := s.o.Identity(ctx).Name()
	lease, err := s.streams.Reserve(who, 1) // before the store is read, so that a refusal costs little
	if err != nil {
		return nil, status.Errorf(codes.ResourceExhausted, "too many streams of %q are open: end some, or ask another dispatcher", who)
	}
	if _, err := s.readFor(ctx); err != nil {
		lease.Release()
		return nil, err
	}
	return lease.Release, nil
}

// send sends a message, and gives up if the reader does not take it within sendTimeout. The goroutine ends with the stream,
// which ends when its method returns or its context does.
func send[T any](s *Service, stream grpc.ServerStreamingServer[T], m *T) error {
	sent := make(chan error, 1)
	go func() { sent <- stream.Send(m) }()
	late := time.NewTimer(s.sendTimeout)
	defer late.Stop()
	select {
	case err := <-sent:
		return err
	case <-late.C:
		return status.Errorf(codes.Aborted, "a message was not read within %v: begin again, and read faster", s.sendTimeout)
	}
}

// next waits for news. It returns an error if the stream has to end instead.
func next[T any](ctx context.Context, s *Service, news <-chan T) error {
	select {
	case <-news:
		return nil
	case <-s.stopping:
		return errStopping
	case <-ctx.Done():
		return ended(ctx)
	}
}

func ended(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() }

func overdue(ctx context.Context, behind []string) error {
	switch {
	case !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return ended(ctx)
	case len(behind) == 0:
		return status.Error(codes.DeadlineExceeded, "no dispatcher says that it lives: look whether any runs and reaches the store")
	}
	return status.Errorf(codes.DeadlineExceeded, "still waiting for %s: `portcullis get dispatchers` shows how far they are", strings.Join(behind, ", "))
}
