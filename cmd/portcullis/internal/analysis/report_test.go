package analysis

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// calls are ten calls of a hook in a minute by an instance that took so long each.
func calls(hook string, minute int, instance string, took time.Duration) *analysisv1.Latency {
	var h latency.Histogram
	for range 10 {
		h.Observe(took)
	}
	l := &analysisv1.Latency{
		Cluster: "prod", Hook: &analysisv1.HookRef{Stage: "validate", Configuration: "c", Name: hook},
		Minute: timestamppb.New(noon.Add(time.Duration(minute) * time.Minute)), Calls: 10, Waited: 10, Took: h[:], Streamed: true,
		Host: durationpb.New(10 * took), Alone: durationpb.New(10 * took),
	}
	if instance != "" {
		l.Instances = []*analysisv1.Instance{{Name: instance, Calls: 10, Took: durationpb.New(10 * took), Host: durationpb.New(10 * took)}}
	}
	if hook == "" {
		l.Hook.Configuration, l.Host, l.Alone = "", nil, nil
	}
	return l
}

func TestFindingsNameTheCause(t *testing.T) {
	const ms = time.Millisecond
	failed := calls("a", 0, "", ms)
	failed.Failed = 3
	held := calls("", 0, "", 200*ms)
	held.Queued = durationpb.New(10 * 150 * ms)
	edge := calls("", 0, "", 200*ms)
	edge.Wire = durationpb.New(10 * 150 * ms)
	queued := calls("a", 0, "", 900*ms)
	queued.Host, queued.Queued = durationpb.New(ms), durationpb.New(10*890*ms)
	webhook := calls("a", 0, "", 900*ms)
	webhook.Streamed, webhook.Host, webhook.Wire = false, nil, durationpb.New(10*890*ms)
	for name, test := range map[string]struct {
		latencies []*analysisv1.Latency
		want      []string // parts of the findings, in order
	}{
		"nothing":                        {[]*analysisv1.Latency{calls("a", 0, "x", ms), calls("a", 0, "y", 2*ms), calls("a", 1, "x", 3*ms)}, nil},
		"slow from the beginning":        {[]*analysisv1.Latency{calls("a", 0, "", 600*ms)}, []string{"hook a takes 600ms in its handler"}},
		"slow in its queue":              {[]*analysisv1.Latency{queued}, []string{"calls of hook a wait 890ms for a free slot"}},
		"a slow webhook over HTTPS":      {[]*analysisv1.Latency{webhook}, []string{"hook a takes 890ms in its webhook"}},
		"slow since a minute":            {[]*analysisv1.Latency{calls("a", 0, "", ms), calls("a", 1, "", ms), calls("a", 2, "", 60*ms), calls("a", 3, "", 70*ms)}, []string{"since 12:02"}},
		"slow for a minute, and no more": {[]*analysisv1.Latency{calls("a", 0, "", ms), calls("a", 1, "", 90*ms), calls("a", 2, "", ms)}, nil},
		"an instance": {
			[]*analysisv1.Latency{calls("a", 0, "x", ms), calls("a", 0, "y", 80*ms), calls("a", 0, "z", ms)},
			[]string{"hook a takes 80ms in its handler on instance y, and 1ms on others"},
		},
		"calls without a verdict": {[]*analysisv1.Latency{failed}, []string{"hook a: 3 of 10 calls gave no verdict"}},
		"a stale configuration":   {[]*analysisv1.Latency{held}, []string{"wait 150ms for a fresh configuration"}},
		"a slow link to the mesh": {[]*analysisv1.Latency{edge}, []string{"take 150ms to arrive and to be decoded"}},
	} {
		var got []string
		for _, f := range Reported(test.latencies).Findings {
			got = append(got, f.Text)
		}
		if all := strings.Join(got, "\n"); (len(got) > 0) != (len(test.want) > 0) || slices.ContainsFunc(test.want, func(w string) bool { return !strings.Contains(all, w) }) {
			t.Errorf("%s: findings %q, want %q", name, got, test.want)
		}
	}
}

func TestHooksThatAddMostComeFirst(t *testing.T) {
	reviews := calls("", 0, "", 50*time.Millisecond)
	reviews.Calls = 40
	once := calls("seldom", 0, "", 20*time.Millisecond)
	r := Reported([]*analysisv1.Latency{once, calls("often", 0, "", 30*time.Millisecond), calls("often", 1, "", 30*time.Millisecond), reviews})
	if len(r.Clusters) != 1 || r.Clusters[0].Reviews != 40 || len(r.Hooks) != 2 {
		t.Fatalf("report %+v", r)
	}
	often := r.Hooks[0]
	if often.Name != "often" || often.Calls != 20 || often.Waited != .5 || often.Added != Duration(15*time.Millisecond) {
		t.Errorf("the first hook is %+v", often)
	}
	data, err := json.Marshal(often)
	if err != nil || !strings.Contains(string(data), `"added":"15ms"`) || strings.Contains(string(data), "since") {
		t.Errorf("JSON %s, %v", data, err)
	}
}

// Reviews of the mutate stage wait for initializers, which have a stage of their own.
func TestReviewsWaitForInitializers(t *testing.T) {
	reviews, waited := calls("", 0, "", 3*time.Second), calls("quota", 0, "", 3*time.Second)
	reviews.Hook.Stage, waited.Hook.Stage = "mutate", "initialize"
	r := Reported([]*analysisv1.Latency{reviews, waited})
	if h := r.Hooks[0]; h.Waited != 1 || h.Added != Duration(3*time.Second) {
		t.Errorf("%+v", h)
	}
}
