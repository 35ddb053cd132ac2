package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

// MaxReviews is the most reviews of one answer of ListReviews.
const MaxReviews = 100

// ListLatencies implements analysisv1.AnalysisServiceServer.
func (s *Service) ListLatencies(ctx context.Context, r *analysisv1.ListLatenciesRequest) (*analysisv1.ListLatenciesResponse, error) {
	leave, err := s.enterReader(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	out := &analysisv1.ListLatenciesResponse{DispatcherId: s.o.ID, Now: timestamppb.Now()}
	if s.o.Latencies == nil {
		return out, nil
	}
	q := latency.Query{Cluster: r.GetCluster(), Hook: r.GetHook(), Since: timeOf(r.GetSince()), Until: timeOf(r.GetUntil())}
	for _, series := range s.o.Latencies.Series(q) {
		l := latencyOf(&series)
		l.DispatcherId = s.o.ID
		out.Latencies = append(out.Latencies, l)
	}
	return out, nil
}

// ListReviews implements analysisv1.AnalysisServiceServer.
func (s *Service) ListReviews(ctx context.Context, r *analysisv1.ListReviewsRequest) (*analysisv1.ListReviewsResponse, error) {
	leave, err := s.enterReader(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	out := &analysisv1.ListReviewsResponse{DispatcherId: s.o.ID}
	if s.o.Latencies == nil {
		return out, nil
	}
	var found []*latency.ReviewRecord
	if id := r.GetId(); id != "" {
		found = s.o.Latencies.Find(id)
	} else {
		limit := min(cmp.Or(int(r.GetLimit()), MaxReviews), MaxReviews)
		q := latency.Query{Cluster: r.GetCluster(), Hook: r.GetHook(), Since: timeOf(r.GetSince()), Until: timeOf(r.GetUntil())}
		if q.Behind, err = placeOf(r.GetContinue()); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		if found = s.o.Latencies.Reviews(q, limit+1); len(found) > limit {
			found = found[:limit]
			last := found[limit-1].Place()
			out.Continue = fmt.Sprintf("%d/%s", last.Took.Nanoseconds(), last.UID)
		}
	}
	for _, v := range found[:min(len(found), MaxReviews)] {
		review := reviewOf(v)
		review.DispatcherId = s.o.ID
		out.Reviews = append(out.Reviews, review)
	}
	return out, nil
}

// placeOf reads the continue of a request.
func placeOf(text string) (p latency.Place, err error) {
	if text == "" {
		return p, nil
	}
	nanoseconds, uid, ok := strings.Cut(text, "/")
	took, err := strconv.ParseInt(nanoseconds, 10, 64)
	if !ok || err != nil {
		return p, errors.New("continue: send the token of the last answer")
	}
	return latency.Place{Took: time.Duration(took), UID: uid}, nil
}

// timeOf returns the zero time for none.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func latencyHook(h match.HookID) *analysisv1.HookRef {
	return &analysisv1.HookRef{Stage: match.StageName(h.Stage), Configuration: h.Configuration, Name: h.Name}
}

func latencyOf(s *latency.Series) *analysisv1.Latency {
	out := &analysisv1.Latency{
		Cluster: s.Cluster, Hook: latencyHook(s.Hook), Minute: timestamppb.New(s.Minute),
		Calls: s.Calls, Failed: s.Failed, FailedOpen: s.FailedOpen, Waited: s.Waited, Took: bucketsOf(s.Took[:]),
		Queued: durationpb.New(s.Queued), Wire: durationpb.New(s.Wire), Host: durationpb.New(s.Host),
		Applied: durationpb.New(s.Applied), Alone: durationpb.New(s.Alone), Streamed: s.Streamed,
		HostQueued: durationpb.New(s.HostQueued), Large: s.Large, LargeTook: durationpb.New(s.LargeTook),
	}
	if s.Observed > 0 {
		out.Observed, out.Stalled = durationpb.New(s.Observed), durationpb.New(s.Stalled)
	}
	if s.Failed > 0 && s.Hook.Name != "" {
		out.FailedQueued, out.FailedWire, out.FailedHost = durationpb.New(s.FailedQueued), durationpb.New(s.FailedWire), durationpb.New(s.FailedHost)
	}
	for _, i := range s.Instances {
		out.Instances = append(out.Instances, &analysisv1.Instance{
			Name: i.Name, Calls: i.Calls, Failed: i.Failed, Took: durationpb.New(i.Took), Host: durationpb.New(i.Host),
			Wire: durationpb.New(i.Wire), Late: i.Late, Active: i.Active, LateIn: i.LateIn, LateWire: durationpb.New(i.LateWire),
		})
	}
	return out
}

func reviewOf(v *latency.ReviewRecord) *analysisv1.Review {
	out := &analysisv1.Review{
		Uid: v.UID, Cluster: v.Cluster, Stage: match.StageName(v.Stage), Operation: v.Operation, Group: v.Group, Resource: v.Resource,
		Namespace: v.Namespace, Name: v.Name, Outcome: v.Outcome, Begun: timestamppb.New(v.Begun),
		Edge: durationpb.New(v.Edge), Held: durationpb.New(v.Held), Took: durationpb.New(v.Took),
		Due: durationpb.New(v.Due), FailsOpen: v.FailsOpen,
		Own: durationpb.New(v.Own), SizeBytes: uint64(v.Size),
	}
	if v.TraceID.IsValid() {
		out.TraceId = v.TraceID.String()
	}
	for i := range v.Calls {
		c := &v.Calls[i]
		out.Calls = append(out.Calls, &analysisv1.Call{
			Hook: latencyHook(c.Hook), Round: c.Round, Begun: durationpb.New(c.Begun), Ended: durationpb.New(c.Ended),
			Queued: durationpb.New(c.Queued), Wire: durationpb.New(c.Wire), Host: durationpb.New(c.Host), HostQueued: durationpb.New(c.HostQueued),
			Applied: durationpb.New(c.Applied), Alone: durationpb.New(c.Alone),
			Outcome: c.Outcome, Failure: c.Failure, Reason: c.Reason, Instance: c.Instance, Streamed: c.Streamed,
		})
	}
	return out
}
