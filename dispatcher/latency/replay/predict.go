package replay

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Group is the reviews of a cluster and stage.
type Group struct {
	// Cluster sent them; empty for all clusters.
	Cluster string
	// Stage is the stage of the API server.
	Stage admissionv1.Stage
}

// Input has the records of recent reviews.
type Input struct {
	// Reviews are those that are kept, by the dispatcher that judged them.
	Reviews map[string][]*latency.ReviewRecord
	// Hooks are in force, in the order of the configuration.
	Hooks []*match.Hook
	// Counts are of all reviews, kept or not.
	Counts map[Group]Counts
	// Slots are the slots of the replicas of hooks, by dispatcher and name of the hook.
	Slots map[string]map[string]Slots
}

// Figures are of the reviews of a group.
type Figures struct {
	// P50 and P99 are quantiles of the time of a review, and Slowest is the longest one.
	P50, P99, Slowest time.Duration
	// Failed have no answer by verdicts, Denied were denied, and FailedOpen were judged without the verdict of some hook.
	Failed, Denied, FailedOpen float64
}

// Prediction has the figures of the reviews of a group before and after a change.
type Prediction struct {
	Group

	// Reviews ended, Kept of them are recorded, and Replayed of these were run through the chain. The rest is taken as it is.
	Reviews        float64
	Kept, Replayed int
	// Before is as recorded, and After with the change.
	Before, After Figures
	// Allowed are reviews that are allowed and were not, and Refused those that were allowed and are not.
	Allowed, Refused float64
	// Estimated is the number of calls, of the replayed reviews, that the records do not have: they take as long as like calls. Overdue is the number
	// of calls that ended at their deadline and have a later one now: their end is unknown, and they are taken to fail.
	Estimated, Overdue int
}

// Predict replays the reviews with a change. It returns a prediction for each cluster and stage, and for each stage of all clusters (the empty one), in the
// order of stages and names. It returns an error if hooks cannot be changed so.
func Predict(in Input, c Variant) ([]Prediction, error) {
	kept, weights := in.weighted()
	known := newReviews(kept, weights)
	now, err := new(Variant).on(in.Hooks, known)
	if err != nil {
		return nil, err
	}
	then, err := c.on(in.Hooks, known)
	if err != nil {
		return nil, err
	}
	if err := in.checkSlots(c.Replicas); err != nil {
		return nil, err
	}
	groups := map[Group]*tally{}
	var before, after []*recording
	for _, dispatcher := range slices.Sorted(maps.Keys(in.Reviews)) {
		var here []*recording
		for _, v := range in.Reviews[dispatcher] {
			before = append(before, newRecording(v, known, in.Hooks))
			here = append(here, newRecording(v, known, in.Hooks))
		}
		for hook, more := range c.Replicas {
			addReplicas(arrivals(here, hook), in.Slots[dispatcher][hook], more)
		}
		after = append(after, here...)
	}
	for i, r := range before {
		one := predict(r, after[i], now, then)
		for _, g := range []Group{{r.review.Cluster, r.review.Stage}, {"", r.review.Stage}} {
			if groups[g] == nil {
				groups[g] = &tally{Prediction: Prediction{Group: g}}
			}
			groups[g].add(r.review, one, weights[i])
		}
	}
	out := make([]Prediction, 0, len(groups))
	for _, t := range groups {
		out = append(out, t.prediction())
	}
	slices.SortFunc(out, func(a, b Prediction) int {
		return cmp.Or(cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Cluster, b.Cluster))
	})
	return out, nil
}

// checkSlots returns an error if a hook that gets more replicas has none.
func (in *Input) checkSlots(replicas map[string]int) error {
	for _, hook := range slices.Sorted(maps.Keys(replicas)) {
		served := false
		for _, slots := range in.Slots {
			served = served || slots[hook].Slots > 0
		}
		if !served {
			return fmt.Errorf("replicas=%s: no host with a free or busy slot serves it: `portcullis get hosts` shows them", hook)
		}
	}
	return nil
}

// weighted returns the kept reviews in the order of their dispatchers, and how many reviews each stands for.
func (in *Input) weighted() (kept []*latency.ReviewRecord, weights []float64) {
	places := map[Group][]int{}
	for _, dispatcher := range slices.Sorted(maps.Keys(in.Reviews)) {
		for _, v := range in.Reviews[dispatcher] {
			g := Group{v.Cluster, v.Stage}
			places[g] = append(places[g], len(kept))
			kept = append(kept, v)
		}
	}
	weights = make([]float64, len(kept))
	for g, at := range places {
		of := make([]*latency.ReviewRecord, len(at))
		for i, place := range at {
			of[i] = kept[place]
		}
		for i, w := range in.Counts[g].weights(of) {
			weights[at[i]] = w
		}
	}
	return kept, weights
}

// predicted is one review before and after a change.
type predicted struct {
	replayed      bool
	before, after judged
}

// predict replays a review as it was and with a change. Recorded time that the first replay does not explain stays as it is. If the first replay
// gives another outcome than the record, or a longer time, the review is not replayed: its record lacks something.
func predict(before, after *recording, now, then *Variant) predicted {
	v := before.review
	same := judged{outcome: v.Outcome, took: v.Took}
	for i := range v.Calls {
		if v.Calls[i].Outcome == latency.OutcomeFailedOpen {
			same.failedOpen++
		}
	}
	is, ok := before.play(now)
	if !ok || is.outcome != v.Outcome || is.took > v.Took+tolerance(v.Took) {
		return predicted{before: same, after: same}
	}
	becomes, ok := after.play(then)
	if !ok {
		return predicted{before: same, after: same}
	}
	becomes.took = max(0, v.Took+becomes.took-is.took)
	return predicted{replayed: true, before: same, after: becomes}
}

// tally adds up the reviews of a group.
type tally struct {
	Prediction
	before, after []weighted
}

func (t *tally) add(v *latency.ReviewRecord, p predicted, weight float64) {
	t.Reviews += weight
	t.Kept++
	if p.replayed {
		t.Replayed++
	}
	t.Estimated, t.Overdue = t.Estimated+p.after.estimated, t.Overdue+p.after.overdue
	t.before, t.after = append(t.before, weighted{v.Edge + p.before.took, weight}), append(t.after, weighted{v.Edge + p.after.took, weight})
	t.Before.add(p.before, weight)
	t.After.add(p.after, weight)
	switch was, is := admitted(p.before.outcome), admitted(p.after.outcome); {
	case is && !was:
		t.Allowed += weight
	case was && !is:
		t.Refused += weight
	}
}

func (f *Figures) add(j judged, weight float64) {
	switch j.outcome {
	case outcomeDenied:
		f.Denied += weight
	case latency.OutcomeFailed, latency.OutcomeRefused:
		f.Failed += weight
	}
	if j.failedOpen > 0 {
		f.FailedOpen += weight
	}
}

func (t *tally) prediction() Prediction {
	for _, side := range []struct {
		figures *Figures
		times   []weighted
	}{{&t.Before, t.before}, {&t.After, t.after}} {
		side.figures.P50, side.figures.P99 = quantile(.5, side.times), quantile(.99, side.times)
		side.figures.Slowest = quantile(1, side.times)
		for _, n := range []*float64{&side.figures.Failed, &side.figures.Denied, &side.figures.FailedOpen} {
			*n = math.Round(*n)
		}
	}
	for _, n := range []*float64{&t.Reviews, &t.Allowed, &t.Refused} {
		*n = math.Round(*n)
	}
	return t.Prediction
}
