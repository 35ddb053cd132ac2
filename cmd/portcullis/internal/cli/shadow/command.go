// Package shadow has the command that reports the would-be decisions of hooks in shadow.
package shadow

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/analysis"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/dispatcher/shadow"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

type command struct {
	mesh    connect.MeshAddress
	timeout time.Duration
	output  string
	limit   int
	query   Query
}

// Query selects records of hooks in shadow.
type Query struct {
	// Cluster and Hook are names; empty for all.
	Cluster, Hook string
	// Since is how far to look back. Counts are of whole hours.
	Since time.Duration
}

// NewCommand returns "shadow".
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shadow",
		Short: "Report the would-be decisions of hooks in shadow",
		Long: `A hook is in shadow if its HookRoute has "shadow: true": it is called and decides nothing. So is a Policy in the mode
shadow. "portcullis shadow report" reports which requests it would have denied or changed, whose, and why, so that a policy can be tried before it
decides.`,
		Example: `  portcullis shadow report --hook imagepolicy.example.com`,
		Args:    cobra.NoArgs,
	}
	cmd.AddCommand(newReport())
	return cmd
}

func newReport() *cobra.Command {
	var c command
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Report which requests hooks in shadow would have denied or changed, whose, and why",
		Long: `Report asks every dispatcher for the would-be decisions of its hooks in shadow, and merges the answers. A hook is in shadow if its
HookRoute has "shadow: true", a Policy in the mode shadow: it is called and decides nothing.

For each hook and cluster it prints how many requests the hook would have allowed, denied and changed, how many calls gave no verdict
(FAILED: the failurePolicy would have decided), how many requests it was not shown (DROPPED, for limits of such calls), and how long its
calls took: so slow it would be if it decided. Then, for each hook, the namespaces and users of these requests, and the latest cases with
their messages. -o markdown prints the same to hand on, -o json all of it.

Dispatchers keep records in memory, by the hour, for a week at most, and lose them when they end. Records name users and objects, but no
Secrets, and hold no object. All who may read the configuration may read them.`,
		Example: `  portcullis shadow report
  portcullis shadow report --hook imagepolicy.example.com --since 24h
  portcullis shadow report --cluster prod-1 -o markdown > report.md
  portcullis shadow report -o json`,
		Args: cobra.NoArgs,
		RunE: c.run,
	}
	f := cmd.Flags()
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long an answer may take")
	f.StringVar(&c.query.Cluster, "cluster", "", "only requests of this cluster")
	f.StringVar(&c.query.Hook, "hook", "", "only hooks of this name")
	f.DurationVar(&c.query.Since, "since", shadow.Retention, "how far to look back, at most a week; counts are of whole hours")
	f.IntVar(&c.limit, "limit", 20, "how many users, and how many cases, of each hook and cluster to print; json and yaml have all")
	cli.OutputFlag(cmd, &c.output, "how to print (default: tables)", printer.Wide, printer.JSON, printer.YAML, printer.Markdown)
	c.mesh.Bind(f)
	return cli.WithSettings(cmd)
}

func (c *command) run(cmd *cobra.Command, _ []string) error {
	if c.query.Since <= 0 || c.query.Since > shadow.Retention {
		return errors.New("--since: use more than nothing and at most 168h, which is how long dispatchers keep records")
	}
	if c.limit <= 0 {
		return errors.New("--limit: use 1 or more")
	}
	return c.mesh.Use(cmd.Context(), c.timeout, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		r, err := Ask(ctx, conn, &c.mesh, c.query, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		return c.print(r, cmd.OutOrStdout())
	})
}

func (c *command) print(r *Report, out io.Writer) error {
	return printer.Print(out, c.output, r, func() error { return r.write(printer.NewPage(out, c.output), c.limit) })
}

// part has the answers of one dispatcher.
type part struct {
	*analysisv1.ListShadowsResponse

	hooks []*configv1.Hook
}

// Ask asks every dispatcher; conn leads to the first. It writes to notes about dispatchers that do not answer.
func Ask(ctx context.Context, conn grpc.ClientConnInterface, address *connect.MeshAddress, q Query, notes io.Writer) (*Report, error) {
	m := mesh.New(conn, address, notes)
	since := time.Now().Add(-q.Since)
	request := &analysisv1.ListShadowsRequest{Cluster: q.Cluster, Hook: q.Hook, Since: timestamppb.New(since)}
	parts, err := mesh.Everywhere(ctx, m, func(ctx context.Context, one mesh.Clients) (p part, err error) {
		if p.ListShadowsResponse, err = one.Analysis.ListShadows(ctx, request); err != nil {
			return p, err
		}
		hooks, err := one.Config.ListHooks(ctx, &configv1.ListHooksRequest{Name: q.Hook})
		p.hooks = hooks.GetHooks()
		return p, err
	})
	if err != nil {
		return nil, err
	}
	r := &Report{Since: since.UTC().Truncate(time.Hour)}
	var answers []*analysisv1.ListShadowsResponse
	var hooks []*configv1.Hook
	for _, p := range parts {
		answers, hooks = append(answers, p.ListShadowsResponse), append(hooks, p.hooks...)
		r.Dispatchers = append(r.Dispatchers, Dispatcher{p.GetDispatcherId(), p.GetRecordingSince().AsTime()})
	}
	r.Hooks = withStates(analysis.Shadows(answers), hooks)
	if len(r.Hooks) == 0 {
		return r, mesh.Known(ctx, m.Config, q.Cluster, q.Hook)
	}
	return r, nil
}

// withStates adds whether hooks are still in shadow, and those in shadow that were not called.
func withStates(all []analysis.Shadow, hooks []*configv1.Hook) []analysis.Shadow {
	for i := range all {
		s := &all[i]
		s.State = "gone"
		own := slices.ContainsFunc(hooks, func(h *configv1.Hook) bool { return same(s, h) && slices.Contains(h.GetClusters(), s.Cluster) })
		for _, h := range hooks {
			switch {
			case !same(s, h) || h.GetState() == configv1.Hook_STATE_REMOVED:
			case own && !slices.Contains(h.GetClusters(), s.Cluster): // a policy may have hooks for other clusters
			case h.GetState() == configv1.Hook_STATE_SHADOW:
				s.State = "shadow"
			case s.State != "shadow":
				s.State = "decides"
			}
		}
	}
	for _, h := range hooks {
		if h.GetState() == configv1.Hook_STATE_SHADOW && !slices.ContainsFunc(all, func(s analysis.Shadow) bool { return same(&s, h) }) {
			all = append(all, analysis.Shadow{
				Stage: h.GetStage(), Configuration: configurationOf(h), Name: h.GetHook().GetName(), State: "shadow",
				Subjects: []analysis.ShadowSubject{}, Cases: []analysis.ShadowCase{},
			})
		}
	}
	return all
}

func same(s *analysis.Shadow, h *configv1.Hook) bool {
	return s.Name == h.GetHook().GetName() && s.Stage == h.GetStage() && s.Configuration == configurationOf(h)
}

// configurationOf is the configuration of a hook as records have it: of a policy KIND/NAME.
func configurationOf(h *configv1.Hook) string {
	object := h.GetHook().GetObject()
	if strings.HasSuffix(object.GetKind(), "Policy") {
		return object.GetKind() + "/" + object.GetName()
	}
	return object.GetName()
}
