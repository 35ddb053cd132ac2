package analyze

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// dispatcher is one dispatcher without others.
type dispatcher struct {
	configv1.ConfigServiceClient
	analysisv1.AnalysisServiceClient

	latencies []*analysisv1.Latency
	hooks     []*configv1.Hook
	reviews   []*analysisv1.Review
	limit     int // of a page of reviews
}

func (d *dispatcher) mesh(notes *bytes.Buffer) mesh.Mesh {
	return mesh.Mesh{Clients: mesh.Clients{Config: d, Analysis: d}, Notes: notes}
}

func (d *dispatcher) ListDispatchers(context.Context, *configv1.ListDispatchersRequest, ...grpc.CallOption) (*configv1.ListDispatchersResponse, error) {
	return &configv1.ListDispatchersResponse{}, nil
}

func (d *dispatcher) ListHooks(context.Context, *configv1.ListHooksRequest, ...grpc.CallOption) (*configv1.ListHooksResponse, error) {
	return &configv1.ListHooksResponse{DispatcherId: "d1", Hooks: d.hooks}, nil
}

func (d *dispatcher) ListLatencies(
	_ context.Context, r *analysisv1.ListLatenciesRequest, _ ...grpc.CallOption,
) (*analysisv1.ListLatenciesResponse, error) {
	out := &analysisv1.ListLatenciesResponse{DispatcherId: "d1"}
	for _, l := range d.latencies {
		if r.GetCluster() == "" || r.GetCluster() == l.GetCluster() {
			out.Latencies = append(out.Latencies, proto.CloneOf(l))
		}
	}
	return out, nil
}

func (d *dispatcher) ListReviews(_ context.Context, r *analysisv1.ListReviewsRequest, _ ...grpc.CallOption) (*analysisv1.ListReviewsResponse, error) {
	from := len(r.GetContinue())
	end := min(len(d.reviews), from+d.limit)
	out := &analysisv1.ListReviewsResponse{DispatcherId: "d1", Reviews: d.reviews[from:end]}
	if end < len(d.reviews) {
		out.Continue = strings.Repeat("x", end)
	}
	return out, nil
}

func lines(all ...string) string { return strings.Join(all, "\n") + "\n" }

// review is a review whose only call took so long.
func review(uid string, took time.Duration) *analysisv1.Review {
	return &analysisv1.Review{
		Uid: uid, Cluster: "prod", Stage: "validate", Operation: "CREATE", Resource: "pods", Outcome: "allowed", Begun: timestamppb.New(noon),
		Took: durationpb.New(took), Due: durationpb.New(10 * time.Second),
		Calls: []*analysisv1.Call{{
			Hook:  &analysisv1.HookRef{Stage: "validate", Configuration: "c", Name: "a"},
			Ended: durationpb.New(took), Host: durationpb.New(took), Outcome: "allowed", Streamed: true,
		}},
	}
}

// reviewsOf are ten reviews that took so long each.
func reviewsOf(took time.Duration) *analysisv1.Latency {
	var h latency.Histogram
	for range 10 {
		h.Observe(took)
	}
	return &analysisv1.Latency{
		Cluster: "prod", Hook: &analysisv1.HookRef{Stage: "validate"}, Minute: timestamppb.New(noon), Calls: 10, Waited: 10, Took: h[:], Streamed: true,
	}
}

func TestAPredictionOfTheCommand(t *testing.T) {
	const ms = time.Millisecond
	hook := &configv1.Hook{
		Hook: &configv1.HookRef{Object: &configv1.ConfigKey{Name: "c"}, Name: "a"}, Stage: "validate", FailurePolicy: "Fail",
		State: configv1.Hook_STATE_IN_ROTATION, Timeout: durationpb.New(10 * time.Second), Streamed: true, Hosts: 1, Slots: 4, SideEffects: "None",
	}
	d := &dispatcher{
		hooks: []*configv1.Hook{hook}, limit: 2, latencies: []*analysisv1.Latency{reviewsOf(ms), reviewsOf(900 * ms)},
		reviews: []*analysisv1.Review{review("1", 900*ms), review("2", 900*ms), review("3", ms), review("4", ms), review("5", ms)},
	}
	c := command{since: 15 * time.Minute, whatIf: []string{"deadline=a:100ms"}}
	predict, err := c.prediction()
	var out, notes bytes.Buffer
	if err == nil {
		err = predict(t.Context(), d.mesh(&notes), &out)
	}
	want := lines(
		"CLUSTER STAGE REVIEWS REPLAYED P50 P99 SLOWEST FAILED "+"FAILED OPEN DENIED",
		"all validate 20 5 1ms 900ms -> 100ms 900ms -> 100ms 0 -> 10 0 0",
		"10 reviews of stage validate (clusters: all) would be refused that were allowed",
		"this stands on 5 reviews of 20: those that are kept; each stands for the reviews that took about as long",
	)
	if got := out.String(); err != nil || strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("%v: %s%s", err, got, &notes)
	}
	out.Reset()
	if c.output = printer.Wide; predict(t.Context(), d.mesh(&notes), &out) != nil || !strings.Contains(out.String(), "\nprod     validate  20") {
		t.Errorf("-o wide prints no cluster: %s", &out)
	}
	hook.State = configv1.Hook_STATE_SHADOW
	if err := predict(t.Context(), d.mesh(&notes), &out); err == nil || !strings.Contains(err.Error(), "no such hook is in force") {
		t.Errorf("a hook in shadow: %v", err)
	}
}
