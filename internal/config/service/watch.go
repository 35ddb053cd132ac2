package service

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"weak"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// watching is the line of the work that all watches share.
const watching = "watch"

// watched are the objects of one listing of the configuration, which all watches share: their number multiplies neither the work of a listing nor
// the memory of the objects.
type watched struct {
	*meshState

	listing <-chan struct{}
	// objects are read-only. An unchanged object is the same message as in the listing before.
	objects map[config.Key]*configv1.ConfigObject
}

// Watch implements configv1.ConfigServiceServer. It compares states whenever this dispatcher has listed its configuration
// again. It does not send a change that is undone in between, so that the messages for a slow reader are bounded.
func (s *Service) Watch(r *configv1.WatchRequest, stream grpc.ServerStreamingServer[configv1.WatchResponse]) error {
	ctx, sent := stream.Context(), map[config.Key]*configv1.ConfigObject{}
	end, err := s.openStream(ctx)
	if err != nil {
		return err
	}
	defer end()
	var last *watched
	for {
		live := s.o.Live.Configuration()
		listing := live.Next()
		w, err := s.watch(ctx, listing)
		if err != nil {
			return err
		}
		var news []*configv1.WatchResponse
		if w != last {
			done, err := s.turn(ctx)
			if err != nil {
				return err
			}
			news = changes(sent, w, r)
			done()
		}
		if last == nil {
			news = append(news, &configv1.WatchResponse{Type: configv1.WatchResponse_TYPE_SYNCED})
		}
		last = w
		for _, change := range news {
			if err := send(s, stream, change); err != nil {
				return err
			}
		}
		if err := next(ctx, s, listing); err != nil {
			return err
		}
	}
}

// watch returns the objects for a caller that may read. The first watch that asks after a listing makes them.
func (s *Service) watch(ctx context.Context, listing <-chan struct{}) (*watched, error) {
	st, err := s.readFor(ctx)
	if err != nil {
		return nil, err
	}
	select {
	case s.watching <- struct{}{}:
	case <-ctx.Done():
		return nil, ended(ctx)
	}
	defer func() { <-s.watching }()
	last := s.watched.Value()
	if last != nil && last.listing == listing && last.state == st.state {
		return last, nil
	}
	// It works for all watches, and none of them need rest from it.
	m, done, err := s.gatherInTurn(ctx, st, func(ctx context.Context) (func(), error) { return wait(ctx, s.shared, watching, false) })
	if err != nil {
		return nil, err
	}
	defer done()
	made := &watched{meshState: m, listing: listing, objects: m.objectsSince(last)}
	s.watched = weak.Make(made)
	return made, nil
}

// objectsSince returns all objects. Those that look as before are the same messages.
func (m *meshState) objectsSince(last *watched) map[config.Key]*configv1.ConfigObject {
	if last != nil && m.equal(last.meshState) {
		return last.objects
	}
	all := map[config.Key]*configv1.ConfigObject{}
	for _, key := range m.keys() {
		all[key] = m.object(key)
		if last != nil && proto.Equal(all[key], last.objects[key]) {
			all[key] = last.objects[key]
		}
	}
	return all
}

// changes returns the messages that bring a reader from the objects that were sent to a listing. It updates the objects that were sent.
func changes(sent map[config.Key]*configv1.ConfigObject, w *watched, r *configv1.WatchRequest) []*configv1.WatchResponse {
	var out []*configv1.WatchResponse
	for _, key := range config.SortedKeys(w.objects) {
		if r.GetKind() != "" && r.GetKind() != key.Kind || r.GetName() != "" && r.GetName() != key.Name {
			continue
		}
		if o, before := w.objects[key], sent[key]; before == nil || before != o && !proto.Equal(before, o) {
			sent[key] = o
			out = append(out, &configv1.WatchResponse{Type: configv1.WatchResponse_TYPE_PUT, Object: o})
		}
	}
	puts := len(out)
	for key, o := range sent {
		if w.objects[key] == nil {
			delete(sent, key)
			out = append(out, &configv1.WatchResponse{Type: configv1.WatchResponse_TYPE_DELETED, Object: o})
		}
	}
	slices.SortFunc(out[puts:], func(a, b *configv1.WatchResponse) int {
		x, y := a.GetObject().GetKey(), b.GetObject().GetKey()
		return cmp.Or(strings.Compare(x.GetKind(), y.GetKind()), strings.Compare(x.GetName(), y.GetName()))
	})
	return out
}
