package service

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

var errStopping = status.Error(codes.Unavailable, "this dispatcher is stopping: ask again, another one answers")

// watching is an open stream of Watch.
type watching struct {
	*Service
	selection

	stream grpc.ServerStreamingServer[initializerv1.WatchResponse]
}

// Watch implements initializerv1.InitializerServiceServer. The header is sent when the watch has begun.
func (s *Service) Watch(r *initializerv1.WatchRequest, stream grpc.ServerStreamingServer[initializerv1.WatchResponse]) error {
	ctx, changed := stream.Context(), s.o.Grants.Next()
	v, end, err := s.openStream(ctx)
	if err != nil {
		return err
	}
	defer end()
	if _, err := strconv.ParseUint(r.GetResourceVersion(), 10, 63); err != nil && r.GetResourceVersion() != "" {
		return status.Error(codes.InvalidArgument, "resource_version: want the version of a list, of an object or of a bookmark")
	}
	if err := s.spend(ctx, v, callWork, 0); err != nil {
		return err
	}
	w := watching{s, selection{v, r.GetSelection()}, stream}
	var first []*initializerv1.StagedObject
	after := r.GetResourceVersion()
	if after == "" {
		if first, after, err = s.o.Store.List(ctx); err != nil {
			return s.answer(err)
		}
	}
	changes, err := s.o.Store.Watch(ctx, after, s.buffer)
	if err != nil {
		return s.answer(err)
	}
	defer changes.Stop()
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	if r.GetResourceVersion() == "" {
		if err := w.sendFirst(first, after, r.GetBookmarks()); err != nil {
			return err
		}
	}
	return w.follow(ctx, changes, changed, r.GetBookmarks())
}

// openStream admits a stream. end has to be called when it is over.
func (s *Service) openStream(ctx context.Context) (v *view, end func(), err error) {
	v, leave, err := s.enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	leave() // a stream is counted among the streams
	select {
	case <-s.stopping:
		return nil, nil, errStopping
	default:
	}
	lease, err := s.streams.Reserve(v.caller.Name(), 1)
	if err != nil {
		return nil, nil, status.Errorf(codes.ResourceExhausted, "too many streams of %q are open: end some, or ask another dispatcher", v.caller.Name())
	}
	return v, lease.Release, nil
}

// sendFirst sends the objects that are there, and a bookmark behind them.
func (w *watching) sendFirst(objects []*initializerv1.StagedObject, version string, bookmarks bool) error {
	for _, o := range objects {
		if !w.has(o) {
			continue
		}
		if err := w.send(&initializerv1.WatchResponse{Type: initializerv1.EventType_EVENT_TYPE_ADDED, Object: w.show(o)}); err != nil {
			return err
		}
	}
	if !bookmarks {
		return nil
	}
	end := bookmark(version)
	end.InitialEventsEnd = true
	return w.send(end)
}

// follow sends changes until the stream has to end.
func (w *watching) follow(ctx context.Context, changes *staged.Watcher, changed <-chan struct{}, bookmarks bool) error {
	t := time.NewTicker(w.Service.bookmarks)
	defer t.Stop()
	for {
		select {
		case e, open := <-changes.Events():
			if !open {
				return w.answer(changes.Err())
			}
			if m := w.message(e); m != nil {
				if err := w.send(m); err != nil {
					return err
				}
			}
		case <-t.C:
			if bookmarks {
				changes.Bookmark()
			}
		case <-changed:
			changed = w.o.Grants.Next()
			if !w.o.Grants.Access(w.caller).equal(w.Access) {
				return status.Error(codes.Aborted, "by a change of the configuration this caller sees other objects: list and watch again")
			}
		case <-w.stopping:
			return errStopping
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// send sends a message, and gives up if the reader does not take it within sendTimeout. The goroutine ends with the stream, which
// ends when its method returns or its context does.
func (w *watching) send(m *initializerv1.WatchResponse) error {
	if err := w.spend(w.stream.Context(), w.view, messageWork, bytesOf(m.GetObject())); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() { sent <- w.stream.Send(m) }()
	late := time.NewTimer(w.sendTimeout)
	defer late.Stop()
	select {
	case err := <-sent:
		return err
	case <-late.C:
		return status.Errorf(codes.Aborted, "a message was not read within %v: list and watch again, and read faster", w.sendTimeout)
	}
}
