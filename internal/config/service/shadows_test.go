package service_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/shadow"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

func TestRecordsOfHooksInShadowAreListed(t *testing.T) {
	f := newFixture(t)
	at := time.Date(2026, 11, 23, 12, 30, 0, 0, time.UTC)
	call := shadow.CallRecord{
		Cluster: "prod", Hook: match.HookID{Stage: admissionv1.Stage_STAGE_VALIDATE, Configuration: "policy", Name: "policy.example.com"},
		Subject: shadow.Subject{Namespace: "shop", User: "jane"}, Outcome: shadow.Denied, Took: 20 * time.Microsecond, Message: "no tag",
		Reference: shadow.Reference{
			UID: "u1", TraceID: [16]byte{1}, Operation: "CREATE", Group: "apps", Resource: "deployments", Subresource: "scale", Name: "web", Instance: "vm-1",
		},
	}
	f.shadows.Add(at, &call)
	call.Hook.Name = "other.example.com"
	f.shadows.Add(at, &call)

	got, err := f.ListShadows(f.as("root"), &analysisv1.ListShadowsRequest{Hook: "policy.example.com", Since: timestamppb.New(at)})
	if err != nil {
		t.Fatal(err)
	}
	if got.GetRecordingSince() == nil {
		t.Error("it does not say since when it records")
	}
	when, counts := timestamppb.New(at), &analysisv1.ShadowCounts{Denied: 1}
	want := &analysisv1.ListShadowsResponse{DispatcherId: "here", RecordingSince: got.GetRecordingSince(), Shadows: []*analysisv1.Shadow{{
		Cluster: "prod", Hook: &analysisv1.HookRef{Stage: "validate", Configuration: "policy", Name: "policy.example.com"},
		Hour: timestamppb.New(at.Truncate(time.Hour)), Counts: counts, FirstSeen: when, LastSeen: when, Took: []uint32{0, 1},
		Subjects: []*analysisv1.ShadowSubject{{Namespace: "shop", User: "jane", Counts: counts, FirstSeen: when, LastSeen: when}},
		Cases: []*analysisv1.ShadowCase{{
			Outcome: "denied", Namespace: "shop", User: "jane", Message: "no tag", Calls: 1, FirstSeen: when, LastSeen: when,
			Uid: "u1", TraceId: "01000000000000000000000000000000", Operation: "CREATE", Group: "apps", Resource: "deployments", Subresource: "scale",
			Name: "web", Instance: "vm-1",
		}},
	}}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	later := &analysisv1.ListShadowsRequest{Since: timestamppb.New(at.Add(time.Hour))}
	if got, err := f.ListShadows(f.as("root"), later); err != nil || len(got.GetShadows()) != 0 {
		t.Errorf("since the next hour: %v, %v", got.GetShadows(), err)
	}
}
