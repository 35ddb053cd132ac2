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

// NewDelete returns "delete".
func NewDelete() *cobra.Command {
	var mesh connect.MeshAddress
	var waits, dryRun bool
	var expect string
	var form string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "delete KIND NAME",
		Short: "Remove an object of the configuration",
		Long: `Delete removes an object: no review begins with it any more, those that did are finished, hosts are told, and then it is
gone. With --wait it returns when no dispatcher judges a review by it any more: a host can be stopped then.
` + configureUsage,
		Example: `  portcullis delete vwc policy --wait --ready-file /tmp/ready.json
  portcullis delete HookRoute/policy`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeKinds,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := keyNamed(args)
			if err != nil {
				return err
			}
			return mesh.Config(cmd.Context(), timeout, func(ctx context.Context, client configv1.ConfigServiceClient) error {
				answer, err := client.Delete(ctx, &configv1.DeleteRequest{Key: key, DryRun: dryRun, ExpectedResourceVersion: expect})
				if err != nil {
					return err
				}
				did := "is being removed"
				if dryRun {
					did = "would be removed (dry run)"
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", Name(key), did)
				if !waits || dryRun {
					return nil
				}
				w := wait{
					request: &configv1.WaitRequest{Revision: answer.GetRevision(), Released: true}, timeout: timeout,
					done: "have let go of it", tell: printer.NewProgress(cmd.ErrOrStderr(), form),
				}
				return w.until(ctx, client)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&waits, "wait", false, "wait until no review is judged by it any more")
	cli.DryRunFlag(cmd, &dryRun, "have the mesh check it, and do nothing")
	f.StringVar(&expect, "expect", "", "version that the object must still have")
	cli.ProgressFlag(cmd, &form)
	f.DurationVar(&timeout, "timeout", time.Minute, "how long that may take")
	mesh.Bind(f)
	return cli.WithSettings(cmd)
}
