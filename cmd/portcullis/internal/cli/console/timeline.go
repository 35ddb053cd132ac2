package console

import (
	"cmp"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

// timeline is the time of the calls of one hook in one cluster, minute by minute.
type timeline struct {
	Cluster       string  `json:"cluster"`
	Stage         string  `json:"stage"`
	Configuration string  `json:"configuration"`
	Name          string  `json:"name"`
	Points        []point `json:"points"` // in the order of the minutes, those with calls alone
}

// point is one minute.
type point struct {
	Minute time.Time `json:"minute"` // its begin
	Calls  uint64    `json:"calls"`
	Failed uint64    `json:"failed"`
	P50    float64   `json:"p50"` // milliseconds
	P99    float64   `json:"p99"`

	took latency.Histogram
}

// timelines are the timelines of all hooks, by name, cluster, stage and configuration, made from the latencies of all
// dispatchers.
func timelines(all []*analysisv1.Latency) []*timeline {
	out := []*timeline{}
	for _, l := range all {
		if l.GetHook().GetName() == "" {
			continue // of reviews
		}
		t := &timeline{Cluster: l.GetCluster(), Stage: l.GetHook().GetStage(), Configuration: l.GetHook().GetConfiguration(), Name: l.GetHook().GetName()}
		i, known := slices.BinarySearchFunc(out, t, compareTimelines)
		if !known {
			out = slices.Insert(out, i, t)
		}
		out[i].add(l)
	}
	for _, t := range out {
		for i := range t.Points {
			p := &t.Points[i]
			p.P50, p.P99 = millis(p.took.Quantile(.5)), millis(p.took.Quantile(.99))
		}
	}
	return out
}

func compareTimelines(a, b *timeline) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Configuration, b.Configuration))
}

// add adds the counts of one dispatcher and minute.
func (t *timeline) add(l *analysisv1.Latency) {
	minute := l.GetMinute().AsTime()
	i, known := slices.BinarySearchFunc(t.Points, minute, func(p point, at time.Time) int { return p.Minute.Compare(at) })
	if !known {
		t.Points = slices.Insert(t.Points, i, point{Minute: minute})
	}
	p := &t.Points[i]
	p.Calls, p.Failed = p.Calls+uint64(l.GetCalls()), p.Failed+uint64(l.GetFailed())
	p.took.Merge(l.GetTook())
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
