package service

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/config/etcdstore"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// waitInterval is how often it is looked how far the dispatchers are. Each look reads one small key for each.
const waitInterval = 50 * time.Millisecond

// Wait implements configv1.ConfigServiceServer.
func (s *Service) Wait(r *configv1.WaitRequest, stream grpc.ServerStreamingServer[configv1.WaitResponse]) error {
	ctx := stream.Context()
	end, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer end()
	last, err := s.follow(r, stream)
	if err != nil && ctx.Err() != nil {
		return overdue(ctx, last.GetBehind())
	}
	return err
}

// follow sends how far the dispatchers are until all have what is waited for. It returns what it sent last.
func (s *Service) follow(r *configv1.WaitRequest, stream grpc.ServerStreamingServer[configv1.WaitResponse]) (last *configv1.WaitResponse, err error) {
	t := time.NewTicker(waitInterval)
	defer t.Stop()
	for {
		all, err := s.o.Objects.Dispatchers(stream.Context())
		if err != nil {
			return last, unavailable(err)
		}
		if now := progress(all, r); last == nil || !proto.Equal(last, now) {
			last = now
			if err := post(&s.streams, stream, now); err != nil || now.GetDone() {
				return last, err
			}
		}
		if err := next(stream.Context(), &s.streams, t.C); err != nil {
			return last, err
		}
	}
}

// progress is how far the dispatchers are with what somebody waits for.
func progress(all []etcdstore.Status, r *configv1.WaitRequest) *configv1.WaitResponse {
	out, revision := &configv1.WaitResponse{Dispatchers: statusesOf(all)}, etcdRevision(r.GetRevision().GetSources())
	for i := range all {
		if !reached(&all[i], revision) || r.GetReleased() && all[i].Held < revision {
			out.Behind = append(out.Behind, all[i].ID)
		}
	}
	out.Done = len(all) > 0 && len(out.GetBehind()) == 0
	return out
}
