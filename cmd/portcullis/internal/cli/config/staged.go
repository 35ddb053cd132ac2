package config

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

// withStaged calls use with the reader of the staged objects of a mesh.
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
func (c *deleteCommand) staged(cmd *cobra.Command, names []string) error {
	name, err := mesh.OneStaged(names)
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

// staged is "explain staged".
func (c *explainCommand) staged(cmd *cobra.Command, names []string) error {
	name, err := mesh.OneStaged(names)
	if err != nil {
		return err
	}
	show := mesh.Show{Out: cmd.OutOrStdout(), Notes: cmd.ErrOrStderr(), Format: c.output}
	return withStaged(cmd.Context(), &c.mesh, c.timeout, show, func(ctx context.Context, s *mesh.Staged) error { return s.Describe(ctx, name) })
}
