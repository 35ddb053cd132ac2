package config

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/internal/cli/printer"
)

// withStaged calls use with what shows the staged objects of a mesh.
func withStaged(ctx context.Context, m *connect.MeshAddress, timeout time.Duration, show mesh.Show, use func(context.Context, *mesh.Staged) error) error {
	return m.Use(ctx, timeout, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		return use(ctx, &mesh.Staged{Show: show, Client: initializerv1.NewInitializerServiceClient(conn)})
	})
}

// staged is "get staged".
func (c *getCommand) staged(cmd *cobra.Command, names []string, timeout time.Duration) error {
	if c.selector != "" {
		return errors.New("-l: staged objects are selected by their names")
	}
	show := mesh.Show{Out: cmd.OutOrStdout(), Notes: cmd.ErrOrStderr(), Format: c.output, Watch: c.watch, Timeout: c.timeout}
	return withStaged(cmd.Context(), &c.mesh, timeout, show, func(ctx context.Context, s *mesh.Staged) error { return s.Get(ctx, names) })
}

// staged is "delete staged".
func (c *deleteCommand) staged(cmd *cobra.Command, args []string) error {
	name, err := mesh.CheckStagedArgs(args)
	switch {
	case err != nil:
		return err
	case len(c.files) > 0 || c.wait:
		return errors.New("-f and --wait are for objects of the configuration")
	}
	show := mesh.Show{Out: c.out, Notes: c.notes}
	return withStaged(cmd.Context(), &c.mesh, c.timeout, show, func(ctx context.Context, s *mesh.Staged) error {
		err := s.Delete(ctx, name, c.expect, c.dryRun != cli.DryRunNone)
		if c.ignoreNotFound && status.Code(err) == codes.NotFound {
			return nil
		}
		return err
	})
}

type describeCommand struct {
	timeout time.Duration
	mesh    connect.MeshAddress
	output  string
}

// NewDescribe returns "describe".
func NewDescribe() *cobra.Command {
	var c describeCommand
	cmd := &cobra.Command{
		Use:   "describe staged NAME",
		Short: "Show an object that is held until initializers have acted",
		Long: `Describe shows a staged object: since when its CREATE is held, by which dispatcher, for whom it waits and since when, and how much
time remains. NAME is what "portcullis get staged" shows, or the end of it from a slash on. Objects of the configuration are shown
by "portcullis get -o yaml" and "portcullis explain".
` + connect.Usage,
		Example: `  portcullis describe staged prod-1/pods/shop/web-1
  portcullis describe staged web-1 -o yaml`,
		ValidArgs: []string{mesh.StagedArg},
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := mesh.CheckStagedArgs(args)
			if err != nil {
				return err
			}
			show := mesh.Show{Out: cmd.OutOrStdout(), Notes: cmd.ErrOrStderr(), Format: c.output}
			return withStaged(cmd.Context(), &c.mesh, c.timeout, show, func(ctx context.Context, s *mesh.Staged) error { return s.Describe(ctx, name) })
		},
	}
	f := cmd.Flags()
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long an answer may take")
	cli.OutputFlag(cmd, &c.output, "how to print (default: text)", printer.JSON, printer.YAML)
	c.mesh.Bind(f)
	return cli.WithSettings(cmd)
}
