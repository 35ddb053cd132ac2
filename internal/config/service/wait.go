package service

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

// waitInterval is how often the streams of Wait look at the reports of the dispatchers. All streams together read the store once in this time.
const waitInterval = 50 * time.Millisecond

// dispatcherReports are the reports of the dispatchers as one read of the store had them, which the streams of Wait share.
type dispatcherReports struct {
	all  []*configv1.DispatcherReport // read-only
	read time.Time
}

// reports returns reports that were read after a time.
func (s *Service) reports(ctx context.Context, after time.Time) (*dispatcherReports, error) {
	select {
	case s.reporting <- struct{}{}:
	case <-ctx.Done():
		return nil, ended(ctx)
	}
	defer func() { <-s.reporting }()
	if last := s.lastReports; last != nil && last.read.After(after) {
		return last, nil
	}
	begun := time.Now()
	all, err := s.dispatchers(ctx)
	if err != nil {
		return nil, err
	}
	s.lastReports = &dispatcherReports{all, begun}
	return s.lastReports, nil
}

// Wait implements configv1.ConfigServiceServer.
func (s *Service) Wait(r *configv1.WaitRequest, stream grpc.ServerStreamingServer[configv1.WaitResponse]) error {
	ctx := stream.Context()
	end, err := s.openStream(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := s.needStore("nothing is applied, so there is nothing to wait for"); err != nil {
		return err
	}
	last, err := s.sendProgress(r, stream)
	if err != nil && ctx.Err() != nil {
		return overdue(ctx, last.GetBehind())
	}
	return err
}

// sendProgress sends the progress of the dispatchers until all are done. It returns the last message. When a removal is done the object
// is gone, and can be applied again.
func (s *Service) sendProgress(r *configv1.WaitRequest, stream grpc.ServerStreamingServer[configv1.WaitResponse]) (last *configv1.WaitResponse, err error) {
	t := time.NewTicker(waitInterval)
	defer t.Stop()
	for after := time.Now(); ; after = time.Now().Add(-waitInterval) {
		reports, err := s.reports(stream.Context(), after)
		if err != nil {
			return last, err
		}
		now := progress(reports.all, r)
		if now.GetDone() && r.GetReleased() {
			err = s.sweep(stream.Context())
		}
		switch {
		case errors.Is(err, etcdstore.ErrMoved): // it sweeps again
		case err != nil:
			return last, err
		case last == nil || !proto.Equal(last, now):
			last = now
			if err := send(s, stream, now); err != nil || now.GetDone() {
				return last, err
			}
		}
		if err := next(stream.Context(), s, t.C); err != nil {
			return last, err
		}
	}
}

// progress returns which dispatchers do not have the revision of a request.
func progress(all []*configv1.DispatcherReport, r *configv1.WaitRequest) *configv1.WaitResponse {
	out, revision := &configv1.WaitResponse{Dispatchers: statusesOf(all)}, etcdRevision(r.GetRevision().GetSources())
	for _, d := range out.GetDispatchers() {
		if !reached(d, revision) || r.GetReleased() && held(d) < revision {
			out.Behind = append(out.Behind, d.GetDispatcherId())
		}
	}
	out.Done = len(all) > 0 && len(out.GetBehind()) == 0
	return out
}
