package config

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/internal/cli/printer"
)

// explainedChanges is how many changes of an object are told.
const explainedChanges = 5

type explainCommand struct {
	timeout time.Duration
	mesh    connect.MeshAddress
	output  string
}

// NewExplain returns "explain".
func NewExplain() *cobra.Command {
	var c explainCommand
	cmd := &cobra.Command{
		Use:   "explain KIND NAME",
		Short: "Say whether an object is in force, and if not, why",
		Long: `Explain tells of one object what somebody on call has to know: whether it is in force everywhere, and if not, what is in the
way and what to do; how far each dispatcher is; its findings; who changed it last, and when.

What hooks said to one review, and why others were not called, is told by "portcullis review --explain".
` + configureUsage,
		Example: `  portcullis explain vwc policy --ready-file /tmp/ready.json
  portcullis explain HookRoute/policy -o yaml`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeKinds,
		RunE:              c.run,
	}
	f := cmd.Flags()
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long an answer may take")
	cli.OutputFlag(cmd, &c.output, "how to print (default: text)", printer.JSON, printer.YAML)
	c.mesh.Bind(f)
	return cli.WithSettings(cmd)
}

func (c *explainCommand) run(cmd *cobra.Command, args []string) error {
	key, err := keyNamed(args)
	if err != nil {
		return err
	}
	return c.mesh.Config(cmd.Context(), c.timeout, func(ctx context.Context, client configv1.ConfigServiceClient) error {
		e, err := explain(ctx, client, key)
		if err != nil {
			return err
		}
		return printer.Print(cmd.OutOrStdout(), c.output, e.messages(), func() error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), e.text(time.Now()))
			return err
		})
	})
}

type explained struct {
	object      *configv1.ConfigObject
	dispatchers []*configv1.DispatcherStatus
	changes     []*configv1.Change // of the object, the latest first
}

func explain(ctx context.Context, client configv1.ConfigServiceClient, key *configv1.ConfigKey) (*explained, error) {
	object, err := client.Get(ctx, &configv1.GetRequest{Key: key})
	if err != nil {
		return nil, err
	}
	dispatchers, err := client.ListDispatchers(ctx, &configv1.ListDispatchersRequest{})
	if err != nil {
		return nil, err
	}
	changes, err := client.ListChanges(ctx, &configv1.ListChangesRequest{Key: key, Limit: explainedChanges})
	if err != nil {
		return nil, err
	}
	return &explained{object.GetObject(), dispatchers.GetDispatchers(), changes.GetChanges()}, nil
}

func (e *explained) messages() map[string]any {
	return map[string]any{
		"object": printer.Message{Message: e.object}, "verdict": e.verdict(), "dispatchers": printer.Messages(e.dispatchers), "changes": printer.Messages(e.changes),
	}
}
