package service

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/config"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// Watch implements configv1.ConfigServiceServer. It compares states whenever this dispatcher has listed its configuration
// again. It does not send a change that is undone in between, so that the messages for a slow reader are bounded.
func (s *Service) Watch(r *configv1.WatchRequest, stream grpc.ServerStreamingServer[configv1.WatchResponse]) error {
	ctx, sent := stream.Context(), map[config.Key]*configv1.ConfigObject{}
	end, err := s.openStream(ctx)
	if err != nil {
		return err
	}
	defer end()
	var last *meshState
	for {
		live := s.o.Live.Configuration()
		m, err := s.readMesh(ctx)
		if err != nil {
			return err
		}
		var news []*configv1.WatchResponse
		if last == nil || !m.equal(last) {
			news = changes(sent, m, r)
		}
		if last == nil {
			news = append(news, &configv1.WatchResponse{Type: configv1.WatchResponse_TYPE_SYNCED})
		}
		last = m
		for _, change := range news {
			if err := send(s, stream, change); err != nil {
				return err
			}
		}
		if err := next(ctx, s, live.Next()); err != nil {
			return err
		}
	}
}

// changes returns the messages from the objects that were sent to those of a state, and updates the former.
func changes(sent map[config.Key]*configv1.ConfigObject, m *meshState, r *configv1.WatchRequest) []*configv1.WatchResponse {
	var out []*configv1.WatchResponse
	there := map[config.Key]bool{}
	for _, key := range m.keys() {
		if r.GetKind() != "" && r.GetKind() != key.Kind || r.GetName() != "" && r.GetName() != key.Name {
			continue
		}
		there[key] = true
		o := m.object(key)
		if before := sent[key]; before == nil || !proto.Equal(before, o) {
			sent[key] = o
			out = append(out, &configv1.WatchResponse{Type: configv1.WatchResponse_TYPE_PUT, Object: o})
		}
	}
	puts := len(out)
	for key, o := range sent {
		if !there[key] {
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
