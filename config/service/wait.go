package service

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// waitInterval is how often it is looked how far the dispatchers are. Each look reads one small key for each.
const waitInterval = 50 * time.Millisecond

// Wait implements configv1.ConfigServiceServer.
func (s *Service) Wait(r *configv1.WaitRequest, stream grpc.ServerStreamingServer[configv1.WaitResponse]) error {
	ctx, revision := stream.Context(), etcdRevision(r.GetRevision().GetSources())
	if _, err := s.view(ctx); err != nil {
		return err
	}
	t := time.NewTicker(waitInterval)
	defer t.Stop()
	var last *configv1.WaitResponse
	for {
		all, err := s.o.Objects.Dispatchers(ctx)
		if err != nil {
			return unavailable(err)
		}
		now := &configv1.WaitResponse{Dispatchers: statusesOf(all)}
		for i := range all {
			if !reached(&all[i], revision) || r.GetReleased() && all[i].Held < revision {
				now.Behind = append(now.Behind, all[i].ID)
			}
		}
		now.Done = len(all) > 0 && len(now.GetBehind()) == 0
		if last == nil || !proto.Equal(last, now) {
			if err := stream.Send(now); err != nil || now.GetDone() {
				return err
			}
			last = now
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return unavailable(ctx.Err())
		}
	}
}
