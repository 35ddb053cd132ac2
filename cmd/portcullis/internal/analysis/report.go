// Package analysis finds where the time of recent reviews went: which hook, on which host, in which phase, since when. It predicts the
// effect of a change of hooks, and sums up hooks in shadow. The records of all dispatchers come in as messages; callers ask for
// them and print the results. All functions are pure.
package analysis

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

// Duration is a duration that is text in JSON, as Go and Kubernetes write it: "1.5ms".
type Duration time.Duration //nolint:recvcheck // it has to be written to be read from text

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// Cell is the duration in a table for people, rounded; "-" for none.
func (d Duration) Cell() string {
	if d == 0 {
		return "-"
	}
	return d.Rounded().String()
}

// Rounded is the duration for people, to three digits or so.
func (d Duration) Rounded() time.Duration {
	exact := time.Duration(d)
	switch {
	case exact >= time.Second:
		return exact.Round(10 * time.Millisecond)
	case exact >= 10*time.Millisecond:
		return exact.Round(100 * time.Microsecond)
	}
	return exact.Round(time.Microsecond)
}

// Phases are means of one call.
type Phases struct {
	// Queued is the wait for a free replica.
	Queued Duration `json:"queued"`
	// Wire is the way to the host and back; zero for webhooks over HTTPS.
	Wire Duration `json:"wire"`
	// Host is the time that the host reports, its queue and its handler, or until the controller of an initializer has acted; zero for
	// webhooks over HTTPS.
	Host Duration `json:"host"`
	// Webhook is way and time of a webhook over HTTPS.
	Webhook Duration `json:"webhook"`
	// Applied is the time to apply the patch.
	Applied Duration `json:"applied"`
}

// Largest is the phase with most time, by name.
func (p Phases) Largest() (name string, d Duration) {
	for _, phase := range []struct {
		name string
		d    Duration
	}{{"queue", p.Queued}, {"wire", p.Wire}, {"host", p.Host}, {"webhook", p.Webhook}, {"apply", p.Applied}} {
		if phase.d > d {
			name, d = phase.name, phase.d
		}
	}
	return name, d
}

// Hook is where the time of one hook in one cluster went.
type Hook struct {
	// Cluster sent the reviews.
	Cluster string `json:"cluster"`
	// Stage, Configuration and Name name the hook.
	Stage         string `json:"stage"`
	Configuration string `json:"configuration"`
	Name          string `json:"name"`
	// Calls were made, Failed of them without a verdict, and FailedOpen of these let the review go on.
	Calls      uint64 `json:"calls"`
	Failed     uint64 `json:"failed"`
	FailedOpen uint64 `json:"failedOpen"`
	// P50 and P99 are quantiles of the time of a call.
	P50 Duration `json:"p50"`
	P99 Duration `json:"p99"`
	// Waited is the share (0 to 1) of the reviews of the stage in which the review waited for this hook and no other.
	Waited float64 `json:"waited"`
	// Added is how long the mean review of the stage waited for this hook and no other.
	Added Duration `json:"added"`
	// Phases are means of one call.
	Phases Phases `json:"phases"`
}

// Cluster is where the time of the reviews of one cluster and stage went.
type Cluster struct {
	// Cluster sent the reviews, for Stage.
	Cluster string `json:"cluster"`
	Stage   string `json:"stage"`
	// Reviews ended, Failed of them without an answer by verdicts.
	Reviews uint64 `json:"reviews"`
	Failed  uint64 `json:"failed"`
	// P50 and P99 are quantiles of the time of a review.
	P50 Duration `json:"p50"`
	P99 Duration `json:"p99"`
	// Held is the mean wait for a fresh configuration, and Edge the mean time before the dispatcher had the request.
	Held Duration `json:"held"`
	Edge Duration `json:"edge"`
}

// Report is where the time of all went.
type Report struct {
	// Clusters by name and stage.
	Clusters []Cluster `json:"clusters"`
	// Hooks are sorted by the time that they added to the reviews of their clusters, the most first.
	Hooks []Hook `json:"hooks"`
	// Findings are sorted by their cost, the highest first.
	Findings []Finding `json:"findings"`
	// Shadows are the would-be decisions of hooks in shadow, in whole hours.
	Shadows []Shadow `json:"shadows"`
}

// StageInitialize is the stage of initializers. Reviews of stageMutate call them.
const StageInitialize, stageMutate = "initialize", "mutate"

// entryStage is the stage of the reviews that call the hooks of a stage.
func entryStage(stage string) string {
	if stage == StageInitialize {
		return stageMutate
	}
	return stage
}

// key names the reviews of a cluster and stage, or the calls of a hook.
type key struct{ cluster, stage, configuration, name string }

// sums are the counts of one key.
type sums struct {
	calls, failed, failedOpen, waited           uint64
	took                                        latency.Histogram
	queued, wire, host, webhook, applied, alone time.Duration
}

// Reported is the report of latencies of all dispatchers.
func Reported(all []*analysisv1.Latency) *Report {
	by := map[key]*sums{}
	for _, l := range all {
		k := key{l.GetCluster(), l.GetHook().GetStage(), l.GetHook().GetConfiguration(), l.GetHook().GetName()}
		if by[k] == nil {
			by[k] = &sums{}
		}
		by[k].add(l)
	}
	r := &Report{}
	for _, k := range slices.SortedFunc(maps.Keys(by), compareKeys) {
		if s := by[k]; k.name == "" {
			r.Clusters = append(r.Clusters, s.cluster(k))
		} else {
			r.Hooks = append(r.Hooks, s.hook(k, by[key{cluster: k.cluster, stage: entryStage(k.stage)}]))
		}
	}
	slices.SortStableFunc(r.Hooks, func(a, b Hook) int { return cmp.Compare(b.Added, a.Added) })
	r.Findings = Findings(all)
	return r
}

// Only keeps the parts about one cluster and hook; empty names keep all. Causes were found by comparison with all others.
func (r *Report) Only(cluster, hook string) *Report {
	is := func(name, wanted string) bool { return wanted == "" || name == wanted }
	names := func(all []string, wanted string) bool {
		return wanted == "" || len(all) == 0 || slices.Contains(all, wanted)
	}
	r.Clusters = slices.DeleteFunc(r.Clusters, func(c Cluster) bool { return !is(c.Cluster, cluster) })
	r.Hooks = slices.DeleteFunc(r.Hooks, func(h Hook) bool { return !is(h.Cluster, cluster) || !is(h.Name, hook) })
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool { return !names(f.Clusters, cluster) || !names(f.Hooks, hook) })
	return r
}

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.stage, b.stage),
		cmp.Compare(a.configuration, b.configuration), cmp.Compare(a.name, b.name))
}

func (s *sums) add(l *analysisv1.Latency) {
	s.calls, s.failed = s.calls+uint64(l.GetCalls()), s.failed+uint64(l.GetFailed())
	s.failedOpen, s.waited = s.failedOpen+uint64(l.GetFailedOpen()), s.waited+uint64(l.GetWaited())
	s.took.Merge(l.GetTook())
	s.queued, s.host = s.queued+l.GetQueued().AsDuration(), s.host+l.GetHost().AsDuration()
	if l.GetStreamed() || l.GetHook().GetName() == "" {
		s.wire += l.GetWire().AsDuration()
	} else {
		s.webhook += l.GetWire().AsDuration()
	}
	s.applied, s.alone = s.applied+l.GetApplied().AsDuration(), s.alone+l.GetAlone().AsDuration()
}

func mean(sum time.Duration, n uint64) Duration {
	if n == 0 {
		return 0
	}
	return Duration(sum / time.Duration(n))
}

func (s *sums) cluster(k key) Cluster {
	return Cluster{
		Cluster: k.cluster, Stage: k.stage, Reviews: s.calls, Failed: s.failed, P50: Duration(s.took.Quantile(.5)), P99: Duration(s.took.Quantile(.99)),
		Held: mean(s.queued, s.calls), Edge: mean(s.wire, s.calls),
	}
}

// hook makes the report of a hook. reviews are the reviews of its cluster that call hooks of its stage; nil if none is
// known.
func (s *sums) hook(k key, reviews *sums) Hook {
	h := Hook{
		Cluster: k.cluster, Stage: k.stage, Configuration: k.configuration, Name: k.name,
		Calls: s.calls, Failed: s.failed, FailedOpen: s.failedOpen, P50: Duration(s.took.Quantile(.5)), P99: Duration(s.took.Quantile(.99)),
		Phases: Phases{
			Queued: mean(s.queued, s.calls), Wire: mean(s.wire, s.calls), Host: mean(s.host, s.calls),
			Webhook: mean(s.webhook, s.calls), Applied: mean(s.applied, s.calls),
		},
	}
	if reviews != nil && reviews.calls > 0 {
		h.Waited, h.Added = min(1, float64(s.waited)/float64(reviews.calls)), mean(s.alone, reviews.calls)
	}
	return h
}
