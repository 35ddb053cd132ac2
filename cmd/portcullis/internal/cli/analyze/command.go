// Package analyze has the command that reports where the time of recent reviews went, and prints the results of package analysis.
package analyze

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/analysis"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

type command struct {
	mesh    connect.MeshAddress
	timeout time.Duration
	output  string
	cluster string
	hook    string
	since   time.Duration
	slowest int
	whatIf  []string
	compare string
	repeat  repetition
}

// NewCommand returns "analyze".
func NewCommand() *cobra.Command {
	var c command
	cmd := &cobra.Command{
		Use:   "analyze [REVIEW]",
		Short: "Say which hook made reviews slow, on which host, in which phase, since when",
		Long: `Analyze asks every dispatcher of the mesh where the time of its recent reviews went, of the last hour at most. No collector and no
Prometheus is needed.

For each hook and cluster it prints how often it was called, how long calls took, how many gave no verdict, in which share of the
reviews the review waited for this hook and no other (WAITED), how much of the mean review that was (ADDED), and where the time of
the mean call went: the wait for a free replica (QUEUE), the way to the host and back (WIRE), the host itself (HOST), or both for a
webhook over HTTPS (WEBHOOK), and the patch (APPLY). The hooks that add most come first. Below are the findings: for each cause its
code, a sentence that names hooks, clusters, instances and the phase, and a remedy. docs/slow.md explains the codes. The decisions that
hooks in shadow would have made in these hours follow. -o wide adds rates, and a table of clusters:
their reviews, the mean wait for a fresh configuration (HELD) and the
mean time before the dispatcher had the request (EDGE). --watch asks again and again.

REVIEW is the uid of a review, or its trace. Analyze draws it: one line for each hook, with its phases. Of each minute the slowest and
the failed reviews of each cluster and hook are kept; --slowest lists them.

--compare sets the time of --since beside an earlier one: the largest slowdowns come first.

--what-if replays the reviews that are kept through the chain that judged them, with a change of hooks, and prints its
effect: without=HOOK (it is not called), deadline=HOOK:TIME (its timeout), validate=HOOK (a mutating hook that changes no object is a
validating one), parallel=HOOK (spec.speculate of its route: it is called before its turn; spec.parallel of an initializer),
replicas=HOOK:+N (so many more replicas). Several changes are made together. Calls take the time that was recorded, but for their wait
for a replica with replicas=: that is replayed through more slots. The time that a busy host adds itself is not known to change.
-o wide prints each cluster.

See "portcullis get hosts" for the state of hosts, and "portcullis explain hook NAME" for one hook.`,
		Example: `  portcullis analyze --since 10m
  portcullis analyze --cluster prod-1 --slowest 5
  portcullis analyze 3f0b6c1e-5f0e-4f0c-9a55-8f1d1c7e2d11
  portcullis analyze --since 10m --compare 60m..50m
  portcullis analyze --what-if without=imagepolicy.example.com
  portcullis analyze --what-if deadline=imagepolicy.example.com:500ms --what-if parallel=owner.example.com,labels.example.com
  portcullis analyze --since 1m --watch -o wide
  portcullis analyze -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: c.run,
	}
	f := cmd.Flags()
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long an answer may take")
	f.StringVar(&c.cluster, "cluster", "", "only reviews of this cluster")
	f.StringVar(&c.hook, "hook", "", "only hooks of this name")
	f.DurationVar(&c.since, "since", 15*time.Minute, "how far to look back, at most an hour")
	f.StringArrayVar(&c.whatIf, "what-if", nil,
		"predict a change: without=HOOK,..., deadline=HOOK:TIME, validate=HOOK,..., parallel=HOOK,... or replicas=HOOK:+N; may be repeated")
	f.StringVar(&c.compare, "compare", "", "compare with an earlier time, from so long to so long ago, for example 60m..50m")
	c.repeat.bind(f)
	f.IntVar(&c.slowest, "slowest", 0, "list so many of the slowest reviews that are kept, at most 100")
	cli.OutputFlag(cmd, &c.output, "how to print (default: text)", printer.Wide, printer.JSON, printer.YAML)
	c.mesh.Bind(f)
	return cli.WithSettings(cmd)
}

func (c *command) run(cmd *cobra.Command, args []string) error {
	if c.since <= 0 || c.since > time.Hour {
		return errors.New("--since: use more than nothing and at most 1h, which is how long dispatchers keep records")
	}
	if c.slowest < 0 || c.slowest > 100 {
		return errors.New("--slowest: use 1 to 100")
	}
	answer, err := c.printing(args)
	if err != nil {
		return err
	}
	return c.repeat.run(cmd, c.output, func(ctx context.Context, out, notes io.Writer) error {
		return c.mesh.Use(ctx, c.timeout, func(ctx context.Context, conn grpc.ClientConnInterface) error {
			return answer(ctx, mesh.New(conn, &c.mesh, notes), out)
		})
	})
}

// printing returns the report that the flags and arguments ask for.
func (c *command) printing(args []string) (func(context.Context, mesh.Mesh, io.Writer) error, error) {
	asked := 0
	for _, one := range []bool{len(args) > 0, c.slowest > 0, c.compare != "", len(c.whatIf) > 0} {
		if one {
			asked++
		}
	}
	switch {
	case asked > 1:
		return nil, errors.New("use one of REVIEW, --slowest, --compare and --what-if")
	case len(c.whatIf) > 0 && c.hook != "":
		return nil, errors.New("--hook: --what-if is about whole reviews; use --cluster to look at fewer")
	case len(args) == 1:
		return func(ctx context.Context, m mesh.Mesh, out io.Writer) error { return c.review(ctx, m, args[0], out) }, nil
	case c.slowest > 0:
		return c.listSlowest, nil
	case c.compare != "":
		return c.comparison()
	case len(c.whatIf) > 0:
		return c.prediction()
	}
	return c.report, nil
}

// known returns an error if there is no cluster or hook of the names that were given.
func (c *command) known(ctx context.Context, m mesh.Mesh) error {
	return mesh.Known(ctx, m.Config, c.cluster, c.hook)
}

// report prints where time went.
func (c *command) report(ctx context.Context, m mesh.Mesh, out io.Writer) error {
	// Of all clusters and hooks: one hook's time is compared with the others.
	request := &analysisv1.ListLatenciesRequest{Since: timestamppb.New(time.Now().Add(-c.since))}
	all, err := latencies(ctx, m, request)
	if err != nil {
		return err
	}
	r, notes := analysis.Reported(all).Only(c.cluster, c.hook), m.Notes
	m.Notes = io.Discard // the first question noted who does not answer
	r.Shadows, err = mesh.Shadows(ctx, m, &analysisv1.ListShadowsRequest{Cluster: c.cluster, Hook: c.hook, Since: request.GetSince()})
	if err != nil {
		return err
	}
	if len(r.Clusters) == 0 || c.hook != "" && len(r.Hooks)+len(r.Shadows) == 0 {
		if err := c.known(ctx, m); err != nil {
			return err
		}
	}
	return printer.Print(out, c.output, r, func() error {
		if len(r.Clusters) == 0 {
			fmt.Fprintf(notes, "no review was judged in the last %s\n", c.since)
			return nil
		}
		return Print(out, r, c.output, window{from: c.since}.span(time.Now()))
	})
}

// Print writes the report of the reviews of a time for people: the hooks, with -o wide the clusters, and below the findings and the hooks in shadow.
func Print(out io.Writer, r *analysis.Report, format string, span time.Duration) error {
	columns := printer.Heads("CLUSTER", "HOOK", "CALLS", "P50", "P99", "FAILED", "WAITED", "ADDED", "QUEUE", "WIRE", "HOST", "WEBHOOK", "APPLY").
		Wide("RATE", "STAGE", "CONFIGURATION")
	var rows [][]string
	for i := range r.Hooks {
		h := &r.Hooks[i]
		rows = append(rows, []string{
			h.Cluster, h.Name, fmt.Sprint(h.Calls), h.P50.Cell(), h.P99.Cell(), fmt.Sprint(h.Failed),
			fmt.Sprintf("%.0f%%", 100*h.Waited), h.Added.Cell(), h.Phases.Queued.Cell(), h.Phases.Wire.Cell(), h.Phases.Host.Cell(),
			h.Phases.Webhook.Cell(), h.Phases.Applied.Cell(), rate(h.Calls, span), h.Stage, h.Configuration,
		})
	}
	if err := printer.NewTable(out, format, columns).Write(rows...); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if format == printer.Wide {
		if err := printClusters(r.Clusters, span, out); err != nil {
			return err
		}
	}
	if len(r.Findings) == 0 {
		fmt.Fprintln(out, "nothing stands out")
	}
	for _, f := range r.Findings {
		fmt.Fprintf(out, "%s: %s\n  %s\n", f.Code, printer.Text(f.Text), f.Help)
	}
	for i := range r.Shadows {
		s := &r.Shadows[i]
		line := fmt.Sprintf("cluster %s: hook %s decides nothing (shadow): %s: see `portcullis shadow report --hook %s`", s.Cluster, s.Name, s.Summary(), s.Name)
		if _, err := fmt.Fprintln(out, printer.Text(line)); err != nil {
			return err
		}
	}
	return nil
}

func printClusters(all []analysis.Cluster, span time.Duration, out io.Writer) error {
	rows := make([][]string, 0, len(all))
	for _, k := range all {
		rows = append(rows, []string{
			k.Cluster, k.Stage, fmt.Sprint(k.Reviews), rate(k.Reviews, span), k.P50.Cell(), k.P99.Cell(), fmt.Sprint(k.Failed), k.Held.Cell(), k.Edge.Cell(),
		})
	}
	columns := printer.Heads("CLUSTER", "STAGE", "REVIEWS", "RATE", "P50", "P99", "FAILED", "HELD", "EDGE")
	if err := printer.NewTable(out, printer.Wide, columns).Write(rows...); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out)
	return err
}

// latencies asks all dispatchers where time went.
func latencies(ctx context.Context, m mesh.Mesh, request *analysisv1.ListLatenciesRequest) (all []*analysisv1.Latency, err error) {
	answers, err := mesh.Everywhere(ctx, m, func(ctx context.Context, one mesh.Clients) (*analysisv1.ListLatenciesResponse, error) {
		return one.Analysis.ListLatencies(ctx, request)
	})
	for _, a := range answers {
		all = append(all, a.GetLatencies()...)
	}
	return all, err
}

// reviews asks all dispatchers for reviews, and returns the slowest first.
func reviews(ctx context.Context, m mesh.Mesh, request *analysisv1.ListReviewsRequest) ([]*analysisv1.Review, error) {
	answers, err := mesh.Everywhere(ctx, m, func(ctx context.Context, one mesh.Clients) (*analysisv1.ListReviewsResponse, error) {
		return one.Analysis.ListReviews(ctx, request)
	})
	return analysis.Slowest(answers), err
}

// review draws one review, in each stage that is kept.
func (c *command) review(ctx context.Context, m mesh.Mesh, id string, out io.Writer) error {
	found, err := reviews(ctx, m, &analysisv1.ListReviewsRequest{Id: id})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return cli.Refused(fmt.Errorf("review %q is not kept: dispatchers keep the slowest and the failed reviews of each minute, cluster and hook, "+
			"for an hour; `portcullis analyze --slowest 20` lists some", id))
	}
	slices.SortFunc(found, func(a, b *analysisv1.Review) int { return a.GetBegun().AsTime().Compare(b.GetBegun().AsTime()) })
	return c.printReviews(found, out, func() error {
		for i, v := range found {
			if i > 0 {
				fmt.Fprintln(out)
			}
			if _, err := fmt.Fprint(out, Waterfall(v)); err != nil {
				return err
			}
		}
		return nil
	})
}

// listSlowest lists the slowest reviews of all dispatchers.
func (c *command) listSlowest(ctx context.Context, m mesh.Mesh, out io.Writer) error {
	found, err := reviews(ctx, m, &analysisv1.ListReviewsRequest{
		Cluster: c.cluster, Hook: c.hook, Since: timestamppb.New(time.Now().Add(-c.since)), Limit: uint32(c.slowest),
	})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		if err := c.known(ctx, m); err != nil {
			return err
		}
	}
	found = found[:min(len(found), c.slowest)]
	return c.printReviews(found, out, func() error {
		if len(found) == 0 {
			fmt.Fprintf(m.Notes, "no review is kept of the last %s\n", c.since)
			return nil
		}
		columns := printer.Heads("BEGUN", "TOOK", "CLUSTER", "STAGE", "OPERATION", "RESOURCE", "NAMESPACE", "NAME", "OUTCOME", "SLOWEST HOOK", "UID").
			Wide("DISPATCHER", "TRACE")
		var rows [][]string
		for _, v := range found {
			rows = append(rows, []string{
				v.GetBegun().AsTime().Format(time.TimeOnly), analysis.Whole(v).Cell(), v.GetCluster(), v.GetStage(), v.GetOperation(), v.GetResource(),
				v.GetNamespace(), v.GetName(), v.GetOutcome(), analysis.SlowestHook(v), v.GetUid(), v.GetDispatcherId(), v.GetTraceId(),
			})
		}
		return printer.NewTable(out, c.output, columns).Write(rows...)
	})
}

// printReviews prints reviews whole, or for people.
func (c *command) printReviews(found []*analysisv1.Review, out io.Writer, people func() error) error {
	return printer.Print(out, c.output, printer.Message{Message: &analysisv1.ListReviewsResponse{Reviews: found}}, people)
}
