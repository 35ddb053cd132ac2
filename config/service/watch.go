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

// Watch implements configv1.ConfigServiceServer. It looks whenever the configuration of this dispatcher was read again: what
// it sends is never older than that, and a change that comes and goes in between is not sent. So what waits for a reader is
// never more than one look.
func (s *Service) Watch(r *configv1.WatchRequest, stream grpc.ServerStreamingServer[configv1.WatchResponse]) error {
	ctx, sent := stream.Context(), map[config.Key]*configv1.ConfigObject{}
	end, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer end()
	var last *view
	for {
		again := s.o.Live.Configuration()
		v, err := s.view(ctx)
		if err != nil {
			return err
		}
		var news []*configv1.WatchResponse
		if last == nil || !v.same(last) {
			news = changes(sent, v, r)
		}
		if last == nil {
			news = append(news, &configv1.WatchResponse{Type: configv1.WatchResponse_TYPE_SYNCED})
		}
		last = v
		for _, change := range news {
			if err := post(&s.streams, stream, change); err != nil {
				return err
			}
		}
		if err := next(ctx, &s.streams, again.Next()); err != nil {
			return err
		}
	}
}

// changes are what has to be sent to who has been sent that, which is brought up to date.
func changes(sent map[config.Key]*configv1.ConfigObject, v *view, r *configv1.WatchRequest) []*configv1.WatchResponse {
	var out []*configv1.WatchResponse
	there := map[config.Key]bool{}
	for _, key := range v.keys() {
		if r.GetKind() != "" && r.GetKind() != key.Kind || r.GetName() != "" && r.GetName() != key.Name {
			continue
		}
		there[key] = true
		o := v.object(key)
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
