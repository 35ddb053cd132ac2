package analyze

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/analysis"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/dispatcher/latency/replay"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// prediction replays the reviews that are kept.
func (c *command) prediction() (func(context.Context, mesh.Mesh, io.Writer) error, error) {
	var variant replay.Variant
	for _, text := range c.whatIf {
		if err := variant.Parse(text); err != nil {
			return nil, fmt.Errorf("--what-if %w", err)
		}
	}
	return func(ctx context.Context, m mesh.Mesh, out io.Writer) error {
		recordings, err := c.recorded(ctx, m)
		if err != nil {
			return err
		}
		w, err := analysis.Predict(recordings, variant)
		if err != nil {
			return cli.Refused(fmt.Errorf("--what-if %w", err))
		}
		if w.Changes = c.whatIf; len(w.Predictions) == 0 {
			if err := c.known(ctx, m); err != nil {
				return err
			}
			fmt.Fprintf(m.Notes, "no review is kept of the last %s\n", c.since)
		}
		return printer.Print(out, c.output, w, func() error { return c.printPrediction(w, out) })
	}, nil
}

// recorded asks all dispatchers for their records.
func (c *command) recorded(ctx context.Context, m mesh.Mesh) ([]analysis.Recording, error) {
	since := timestamppb.New(time.Now().Add(-c.since))
	return mesh.Everywhere(ctx, m, func(ctx context.Context, one mesh.Clients) (r analysis.Recording, err error) {
		if r.Hooks, err = one.Config.ListHooks(ctx, &configv1.ListHooksRequest{}); err != nil {
			return r, err
		}
		if r.Reviews, err = kept(ctx, one.Analysis, &analysisv1.ListReviewsRequest{Cluster: c.cluster, Since: since}); err != nil {
			return r, err
		}
		r.Latencies, err = one.Analysis.ListLatencies(ctx, &analysisv1.ListLatenciesRequest{Cluster: c.cluster, Since: since})
		return r, err
	})
}

// kept returns the reviews that a dispatcher keeps, page by page.
func kept(ctx context.Context, client analysisv1.AnalysisServiceClient, request *analysisv1.ListReviewsRequest) (all []*analysisv1.Review, err error) {
	for len(all) < analysis.MaxReplayed {
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

func (c *command) printPrediction(w *analysis.WhatIf, out io.Writer) error {
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
			name, p.Stage, fmt.Sprint(p.Reviews), fmt.Sprint(p.Replayed), became(p.Before.P50.Cell(), p.After.P50.Cell()),
			became(p.Before.P99.Cell(), p.After.P99.Cell()), became(p.Before.Slowest.Cell(), p.After.Slowest.Cell()), changed(p.Before.Failed, p.After.Failed),
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
