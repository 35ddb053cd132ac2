package analysis

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

var midday = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// denied is the record of an hour in which jane was denied so often, the last time in a minute of it.
func denied(hour, minute int, calls uint32, uid string) *analysisv1.Shadow {
	begun := midday.Add(time.Duration(hour) * time.Hour)
	first, last := timestamppb.New(begun), timestamppb.New(begun.Add(time.Duration(minute)*time.Minute))
	counts := &analysisv1.ShadowCounts{Denied: calls, Allowed: 1, Dropped: 1}
	return &analysisv1.Shadow{
		Cluster: "prod", Hook: &analysisv1.HookRef{Stage: "validate", Configuration: "c", Name: "h"}, Hour: first,
		Counts: counts, FirstSeen: first, LastSeen: last, Took: []uint32{0, calls + 1},
		Subjects: []*analysisv1.ShadowSubject{
			{Namespace: "quiet", User: "joe", Counts: &analysisv1.ShadowCounts{Allowed: 1, Dropped: 1}, FirstSeen: first, LastSeen: first},
			{Namespace: "shop", User: "jane", Counts: &analysisv1.ShadowCounts{Denied: calls}, FirstSeen: first, LastSeen: last},
		},
		Cases: []*analysisv1.ShadowCase{{
			Outcome: "denied", Namespace: "shop", User: "jane", Message: "no tag", Calls: calls, FirstSeen: first, LastSeen: last,
			Uid: uid, Operation: "CREATE", Group: "apps", Resource: "deployments", Subresource: "scale", Name: "web",
		}},
	}
}

func TestRecordsOfDispatchersAndHoursAreMerged(t *testing.T) {
	got := Shadows([]*analysisv1.ListShadowsResponse{
		{DispatcherId: "d1", Shadows: []*analysisv1.Shadow{denied(1, 5, 2, "later"), denied(0, 1, 1, "first")}},
		{
			DispatcherId: "d2", Shadows: []*analysisv1.Shadow{denied(1, 7, 4, "latest")},
			DroppedUntil: map[string]*timestamppb.Timestamp{"prod": timestamppb.New(midday)},
		},
	})
	data, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.ReplaceAll(strings.ReplaceAll(`[{"cluster":"prod","stage":"validate","configuration":"c","name":"h",
"calls":10,"allowed":3,"wouldDeny":7,"wouldPatch":0,"failed":0,"dropped":3,"p50":"20.48µs","p99":"20.48µs",
"firstSeen":"2026-11-23T12:00:00Z","lastSeen":"2026-11-23T13:07:00Z","incompleteBefore":"2026-11-23T12:00:00Z","subjects":[
{"namespace":"shop","user":"jane","calls":7,"allowed":0,"wouldDeny":7,"wouldPatch":0,"failed":0,"dropped":0,
"firstSeen":"2026-11-23T12:00:00Z","lastSeen":"2026-11-23T13:07:00Z"},
{"namespace":"quiet","user":"joe","calls":3,"allowed":3,"wouldDeny":0,"wouldPatch":0,"failed":0,"dropped":3,
"firstSeen":"2026-11-23T12:00:00Z","lastSeen":"2026-11-23T13:00:00Z"}],"cases":[
{"outcome":"denied","namespace":"shop","user":"jane","message":"no tag","calls":7,
"firstSeen":"2026-11-23T12:00:00Z","lastSeen":"2026-11-23T13:07:00Z","uid":"latest",
"operation":"CREATE","group":"apps","resource":"deployments","subresource":"scale","name":"web","dispatcher":"d2"}]}]`, "\n", ""), "\t", "")
	if string(data) != want {
		t.Errorf("merged:\n%s\nwant\n%s", data, want)
	}
	if s := got[0].Summary(); s != "of 10 requests it would have denied 7 and changed 0; 3 more were not shown to it; p99 20µs" {
		t.Errorf("summary: %s", s)
	}
	if o := got[0].Cases[0].Object(); o != "CREATE deployments.apps/scale web" {
		t.Errorf("object: %s", o)
	}
}

func TestASummarySaysWhatIsNotKnown(t *testing.T) {
	if s := (&Shadow{}).Summary(); s != "it was not called" {
		t.Error(s)
	}
	s := &Shadow{ShadowCounts: ShadowCounts{Calls: 2, Failed: 1, WouldPatch: 1}}
	if s := s.Summary(); s != "of 2 requests it would have denied 0 and changed 1, and 1 got no verdict" {
		t.Error(s)
	}
}
