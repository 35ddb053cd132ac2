package analysis

import (
	"fmt"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency/replay"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// MaxReplayed bounds the reviews of each dispatcher that a prediction stands on.
const MaxReplayed = 10_000

// Figures are of reviews before or after a change.
type Figures struct {
	// P50, P99 and Slowest are of the time of a review.
	P50     Duration `json:"p50"`
	P99     Duration `json:"p99"`
	Slowest Duration `json:"slowest"`
	// Failed counts the reviews without an answer by verdicts, Denied the denied ones, and FailedOpen the reviews that went on without a verdict.
	Failed     uint64 `json:"failed"`
	Denied     uint64 `json:"denied"`
	FailedOpen uint64 `json:"failedOpen"`
}

// Prediction has the figures of the reviews of a stage before and after a change.
type Prediction struct {
	// Cluster sent the reviews, for Stage; empty for the reviews of all clusters.
	Cluster string `json:"cluster"`
	Stage   string `json:"stage"`
	// Reviews ended, Kept of them are recorded, and Replayed of these were judged again.
	Reviews  uint64 `json:"reviews"`
	Kept     int    `json:"kept"`
	Replayed int    `json:"replayed"`
	// Before is as recorded, and After with the change.
	Before Figures `json:"before"`
	After  Figures `json:"after"`
	// Allowed counts the reviews that would be allowed and were not, and Refused the reverse.
	Allowed uint64 `json:"allowed"`
	Refused uint64 `json:"refused"`
	// EstimatedCalls, of the replayed reviews, take as long as like calls; OverdueCalls are taken to fail at their later deadline too.
	EstimatedCalls int `json:"estimatedCalls"`
	OverdueCalls   int `json:"overdueCalls"`
}

// WhatIf has the effect of changes.
type WhatIf struct {
	// Changes are as the user wrote them.
	Changes []string `json:"changes"`
	// Predictions are by stage, first of all clusters and then of each.
	Predictions []Prediction `json:"predictions"`
	// Notes are sentences about the records behind the predictions.
	Notes []string `json:"notes"`
}

// Recording has the records of one dispatcher.
type Recording struct {
	// Hooks are as the dispatcher has them.
	Hooks *configv1.ListHooksResponse
	// Latencies count all reviews.
	Latencies *analysisv1.ListLatenciesResponse
	// Reviews are kept, MaxReplayed of them at most, the slowest first.
	Reviews []*analysisv1.Review
}

// GetDispatcherId returns the id of the dispatcher.
func (r Recording) GetDispatcherId() string { return r.Hooks.GetDispatcherId() } //nolint:staticcheck // as protobuf names it

// Predict replays the reviews of all dispatchers with a change. It returns an error if the change names a hook that is not in force.
func Predict(recordings []Recording, variant replay.Variant) (*WhatIf, error) {
	in := inputOf(recordings)
	predictions, err := replay.Predict(in, variant)
	if err != nil {
		return nil, err
	}
	w := &WhatIf{Predictions: []Prediction{}}
	for i := range predictions {
		w.Predictions = append(w.Predictions, predictionOf(&predictions[i]))
	}
	w.Notes = notes(w.Predictions, variant)
	for dispatcher, kept := range in.Reviews {
		if len(kept) >= MaxReplayed {
			w.Notes = append(w.Notes, fmt.Sprintf("dispatcher %s keeps more: only its %d slowest reviews were read", dispatcher, len(kept)))
		}
	}
	return w, nil
}

func predictionOf(p *replay.Prediction) Prediction {
	return Prediction{
		Cluster: p.Cluster, Stage: match.StageName(p.Stage), Reviews: uint64(p.Reviews), Kept: p.Kept, Replayed: p.Replayed,
		Before: figuresOf(p.Before), After: figuresOf(p.After), Allowed: uint64(p.Allowed), Refused: uint64(p.Refused),
		EstimatedCalls: p.Estimated, OverdueCalls: p.Overdue,
	}
}

func figuresOf(f replay.Figures) Figures {
	return Figures{
		P50: Duration(f.P50), P99: Duration(f.P99), Slowest: Duration(f.Slowest),
		Failed: uint64(f.Failed), Denied: uint64(f.Denied), FailedOpen: uint64(f.FailedOpen),
	}
}

// notes are sentences about the data and the limits of predictions.
func notes(all []Prediction, variant replay.Variant) []string {
	var reviews uint64
	var kept, replayed, estimated, overdue int
	for i := range all {
		if p := &all[i]; p.Cluster == "" {
			reviews, kept, replayed = reviews+p.Reviews, kept+p.Kept, replayed+p.Replayed
			estimated, overdue = estimated+p.EstimatedCalls, overdue+p.OverdueCalls
		}
	}
	out := []string{fmt.Sprintf("this stands on %d reviews of %d: those that are kept; each stands for the reviews that took about as long", replayed, reviews)}
	add := func(when bool, format string, args ...any) {
		if when {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(kept > replayed, "%d more are kept and taken as they were: their records do not explain their answer", kept-replayed)
	add(estimated > 0, "%d calls are not recorded, since their reviews ended without them: they take as long as calls of like reviews", estimated)
	add(overdue > 0, "%d calls ended at their deadline and have a later one: when they would have ended is not known, so they are taken to fail", overdue)
	add(len(variant.Replicas) > 0, "calls that are not kept waited in the same queue, so the waits for a replica may become shorter than predicted; "+
		"the slowness that a busy host adds stays as recorded, and calls without a verdict are taken to fail again")
	add(len(variant.Validating) > 0, "hooks that validate instead are counted behind the mutating ones: other validating hooks run at the same time")
	return out
}
