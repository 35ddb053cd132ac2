package service

import (
	"context"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/dispatcher/shadow"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

// ListShadows implements analysisv1.AnalysisServiceServer.
func (s *Service) ListShadows(ctx context.Context, r *analysisv1.ListShadowsRequest) (*analysisv1.ListShadowsResponse, error) {
	leave, err := s.enterReader(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	out := &analysisv1.ListShadowsResponse{DispatcherId: s.o.ID, RecordingSince: timestamppb.New(s.started)}
	if s.o.Shadows == nil {
		return out, nil
	}
	for _, h := range s.o.Shadows.Hooks(shadow.Query{Cluster: r.GetCluster(), Hook: r.GetHook(), Since: timeOf(r.GetSince())}) {
		out.Shadows = append(out.Shadows, shadowOf(&h))
	}
	for cluster, until := range s.o.Shadows.Dropped() {
		if out.DroppedUntil == nil {
			out.DroppedUntil = map[string]*timestamppb.Timestamp{}
		}
		out.DroppedUntil[cluster] = timestamppb.New(until)
	}
	return out, nil
}

func shadowOf(h *shadow.Hook) *analysisv1.Shadow {
	out := &analysisv1.Shadow{
		Cluster: h.Cluster, Hook: latencyHook(h.Hook), Hour: timestamppb.New(h.Hour), Counts: shadowCounts(h.Counts),
		FirstSeen: timestamppb.New(h.First), LastSeen: timestamppb.New(h.Last), Took: bucketsOf(h.Took[:]),
	}
	for i := range h.Subjects {
		u := &h.Subjects[i]
		out.Subjects = append(out.Subjects, &analysisv1.ShadowSubject{
			Namespace: u.Namespace, User: u.User, Others: u.Others, Counts: shadowCounts(u.Counts),
			FirstSeen: timestamppb.New(u.First), LastSeen: timestamppb.New(u.Last),
		})
	}
	for i := range h.Cases {
		out.Cases = append(out.Cases, shadowCase(&h.Cases[i]))
	}
	return out
}

func shadowCounts(c shadow.Counts) *analysisv1.ShadowCounts {
	return &analysisv1.ShadowCounts{Allowed: c.Allowed, Patched: c.Patched, Denied: c.Denied, Failed: c.Failed, Dropped: c.Dropped}
}

func shadowCase(c *shadow.Case) *analysisv1.ShadowCase {
	v := &c.Latest
	out := &analysisv1.ShadowCase{
		Outcome: string(c.Outcome), Namespace: c.Namespace, User: c.User, Message: c.Message, Calls: c.Calls,
		FirstSeen: timestamppb.New(c.First), LastSeen: timestamppb.New(c.Last),
		Uid: v.UID, Operation: v.Operation, Group: v.Group, Resource: v.Resource, Subresource: v.Subresource, Name: v.Name, Instance: v.Instance,
	}
	if v.TraceID.IsValid() {
		out.TraceId = v.TraceID.String()
	}
	return out
}

// bucketsOf copies the buckets of a histogram without the empty ones at the end.
func bucketsOf(buckets []uint32) []uint32 {
	for len(buckets) > 0 && buckets[len(buckets)-1] == 0 {
		buckets = buckets[:len(buckets)-1]
	}
	return slices.Clone(buckets)
}
