package analyze

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency/replay"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/internal/cli/printer"
)

// maxReplayed bounds the reviews of each dispatcher that a prediction stands on; the slowest are read first.
const maxReplayed = 10_000

// Figures are of reviews before or after a change.
type Figures struct {
	// P50, P99 and Slowest are of the time of a review.
	P50     Duration `json:"p50"`
	P99     Duration `json:"p99"`
	Slowest Duration `json:"slowest"`
	// Failed are reviews without an answer by verdicts, Denied those that were denied, and FailedOpen those that went on without a verdict.
	Failed     uint64 `json:"failed"`
	Denied     uint64 `json:"denied"`
	FailedOpen uint64 `json:"failedOpen"`
}

// Prediction has the figures of the reviews of a stage before and after a change.
type Prediction struct {
	// Cluster sent the reviews, for Stage; empty for those of all clusters.
	Cluster string `json:"cluster"`
	Stage   string `json:"stage"`
	// Reviews ended, Kept of them are recorded, and Replayed of these were judged again.
	Reviews  uint64 `json:"reviews"`
	Kept     int    `json:"kept"`
	Replayed int    `json:"replayed"`
	// Before is as recorded, and After with the change.
	Before Figures `json:"before"`
	After  Figures `json:"after"`
	// Allowed are reviews that would be allowed and were not, and Refused those that would not be and were.
	Allowed uint64 `json:"allowed"`
	Refused uint64 `json:"refused"`
	// EstimatedCalls, of the replayed reviews, take as long as like calls; OverdueCalls are taken to fail at their later deadline too.
	EstimatedCalls int `json:"estimatedCalls"`
	OverdueCalls   int `json:"overdueCalls"`
}

// WhatIf has the effect of changes.
type WhatIf struct {
	// Changes are those of --what-if.
	Changes []string `json:"changes"`
	// Predictions are by stage, first of all clusters and then of each.
	Predictions []Prediction `json:"predictions"`
	// Notes are sentences about what the predictions stand on.
	Notes []string `json:"notes"`
}

// prediction replays the reviews that are kept.
func (c *command) prediction() (func(context.Context, meshOf, io.Writer) error, error) {
	var change replay.Change
	for _, text := range c.whatIf {
		if err := change.Parse(text); err != nil {
			return nil, fmt.Errorf("--what-if %w", err)
		}
	}
	return func(ctx context.Context, m meshOf, out io.Writer) error {
		in, err := c.recorded(ctx, m)
		if err != nil {
			return err
		}
		predictions, err := replay.Predict(in, change)
		if err != nil {
			return cli.Refused(fmt.Errorf("--what-if %w", err))
		}
		if len(predictions) == 0 {
			if err := c.known(ctx, m); err != nil {
				return err
			}
			fmt.Fprintf(m.Notes, "no review is kept of the last %s\n", c.since)
		}
		w := &WhatIf{Changes: c.whatIf, Predictions: []Prediction{}}
		for i := range predictions {
			w.Predictions = append(w.Predictions, predictionOf(&predictions[i]))
		}
		w.Notes = notes(w.Predictions, change)
		for dispatcher, kept := range in.Reviews {
			if len(kept) >= maxReplayed {
				w.Notes = append(w.Notes, fmt.Sprintf("dispatcher %s keeps more: only its %d slowest reviews were read", dispatcher, len(kept)))
			}
		}
		return printer.Print(out, c.output, w, func() error { return c.printPrediction(w, out) })
	}, nil
}

// recording has what a prediction needs of one dispatcher.
type recording struct {
	hooks     *configv1.ListHooksResponse
	latencies *analysisv1.ListLatenciesResponse
	reviews   []*analysisv1.Review
}

// GetDispatcherId implements the answers of mesh.Everywhere.
func (r recording) GetDispatcherId() string { return r.hooks.GetDispatcherId() } //nolint:staticcheck // as protobuf names it

// recorded asks all dispatchers for the input of a prediction.
func (c *command) recorded(ctx context.Context, m meshOf) (in replay.Input, err error) {
	since := timestamppb.New(time.Now().Add(-c.since))
	answers, err := mesh.Everywhere(ctx, m, func(ctx context.Context, one clients) (r recording, err error) {
		if r.hooks, err = one.config.ListHooks(ctx, &configv1.ListHooksRequest{}); err != nil {
			return r, err
		}
		if r.reviews, err = kept(ctx, one.analysis, &analysisv1.ListReviewsRequest{Cluster: c.cluster, Since: since}); err != nil {
			return r, err
		}
		r.latencies, err = one.analysis.ListLatencies(ctx, &analysisv1.ListLatenciesRequest{Cluster: c.cluster, Since: since})
		return r, err
	})
	if err != nil {
		return in, err
	}
	return inputOf(answers), nil
}

// kept returns the reviews that a dispatcher keeps, page by page.
func kept(ctx context.Context, client analysisv1.AnalysisServiceClient, request *analysisv1.ListReviewsRequest) (all []*analysisv1.Review, err error) {
	for len(all) < maxReplayed {
		page, err := client.ListReviews(ctx, request)
		if err != nil {
			return nil, err
		}
		all = append(all, page.GetReviews()...)
		if request.Continue = page.GetContinue(); request.GetContinue() == "" {
			break
		}
	}
	return all, nil
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

// notes are sentences about what predictions stand on, and what they do not know.
func notes(all []Prediction, change replay.Change) []string {
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
	add(len(change.Replicas) > 0, "calls that are not kept waited in the same queue, so the waits for a replica may become shorter than predicted; "+
		"what a busy host makes slower is taken as it was, and calls without a verdict are taken to fail again")
	add(len(change.Validating) > 0, "hooks that validate instead are counted behind the mutating ones: other validating hooks run at the same time")
	return out
}

func (c *command) printPrediction(w *WhatIf, out io.Writer) error {
	columns := printer.Heads("CLUSTER", "STAGE", "REVIEWS", "REPLAYED", "P50", "P99", "SLOWEST", "FAILED", "FAILED OPEN", "DENIED")
	var rows [][]string
	var sentences []string
	for _, p := range w.Predictions {
		name := p.Cluster
		if name == "" {
			name = cmp.Or(c.cluster, "all")
		} else if c.output != printer.Wide {
			continue
		}
		rows = append(rows, []string{
			name, p.Stage, fmt.Sprint(p.Reviews), fmt.Sprint(p.Replayed), became(cell(p.Before.P50), cell(p.After.P50)),
			became(cell(p.Before.P99), cell(p.After.P99)), became(cell(p.Before.Slowest), cell(p.After.Slowest)), changed(p.Before.Failed, p.After.Failed),
			changed(p.Before.FailedOpen, p.After.FailedOpen), changed(p.Before.Denied, p.After.Denied),
		})
		if p.Allowed > 0 {
			sentences = append(sentences, fmt.Sprintf("%d reviews of stage %s (clusters: %s) would be allowed that were not", p.Allowed, p.Stage, name))
		}
		if p.Refused > 0 {
			sentences = append(sentences, fmt.Sprintf("%d reviews of stage %s (clusters: %s) would be refused that were allowed", p.Refused, p.Stage, name))
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if err := printer.NewTable(out, c.output, columns).Write(rows...); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, s := range append(sentences, w.Notes...) {
		if _, err := fmt.Fprintln(out, printer.Text(s)); err != nil {
			return err
		}
	}
	return nil
}

func changed(before, after uint64) string { return became(fmt.Sprint(before), fmt.Sprint(after)) }
