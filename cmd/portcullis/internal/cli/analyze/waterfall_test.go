package analyze

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func TestAReviewIsDrawn(t *testing.T) {
	d := func(ms int) *durationpb.Duration { return durationpb.New(time.Duration(ms) * time.Millisecond) }
	got := Waterfall(&analysisv1.Review{
		Uid: "u1", TraceId: "4bf9", Cluster: "prod", Stage: "mutate", Operation: "CREATE", Resource: "deployments", Group: "apps",
		Namespace: "shop", Name: "web", Outcome: "failed", Begun: timestamppb.New(noon), Edge: d(10), Held: d(20), Took: d(90), DispatcherId: "d1",
		Calls: []*analysisv1.Call{
			{Hook: &analysisv1.HookRef{Name: "a"}, Begun: d(20), Ended: d(50), Applied: d(10), Queued: d(10), Wire: d(5), Host: d(15), Outcome: "patched", Instance: "i1", Streamed: true},
			{Hook: &analysisv1.HookRef{Name: "c", Stage: "initialize"}, Begun: d(60), Ended: d(90), Host: d(30), Outcome: "allowed", Streamed: true},
			{Hook: &analysisv1.HookRef{Name: "b"}, Round: 1, Begun: d(60), Ended: d(90), Outcome: "failed", Reason: "timeout\x1b[31m"},
		},
	})
	want := strings.Join([]string{
		"CREATE deployments.apps shop web of cluster prod: mutate, failed",
		"  uid u1, at 2026-11-23T12:00:00Z, on dispatcher d1",
		"  trace 4bf9",
		"review                                       |======================================= |      100ms",
		"  read and decoded                           |====                                    |       10ms",
		"  held for a fresh configuration             |    ========                            |       20ms",
		"  a                                          |            ################            |       40ms  patched by i1",
		"    queue                                    |            ----                        |       10ms",
		"    wire                                     |                --                      |        5ms",
		"    host                                     |                  ------                |       15ms",
		"    apply                                    |                        ----            |       10ms",
		"  c (initializer)                            |                            ########### |       30ms  allowed",
		"    controller                               |                            ----------- |       30ms",
		"  b (again)                                  |                            ########### |       30ms  failed: timeout",
	}, "\n")
	if !strings.HasPrefix(got, want) || strings.Contains(got, "\x1b") {
		t.Errorf("drawn:\n%s\nwant:\n%s", got, want)
	}
}
