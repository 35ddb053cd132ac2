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
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
)

// staged is "get staged".
func (c *getCommand) staged(cmd *cobra.Command, names []string, timeout time.Duration) error {
	if c.selector != "" {
		return errors.New("-l: staged objects are selected by their names")
	}
	return c.mesh.Use(cmd.Context(), timeout, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		return c.show(cmd, conn).Staged(ctx, names)
	})
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
	return c.mesh.Use(cmd.Context(), c.timeout, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		show := mesh.Show{Mesh: mesh.New(conn, &c.mesh, c.notes), Out: c.out}
		err := show.DeleteStaged(ctx, name, c.expect, c.dryRun != cli.DryRunNone)
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
	return c.mesh.Use(cmd.Context(), c.timeout, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		show := mesh.Show{Mesh: mesh.New(conn, &c.mesh, cmd.ErrOrStderr()), Out: cmd.OutOrStdout(), Format: c.output}
		return show.DescribeStaged(ctx, name)
	})
}
