package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

type deleteCommand struct {
	files          []string
	wait           bool
	dryRun         cli.DryRun
	ignoreNotFound bool
	expect         string
	progress       string
	timeout        time.Duration
	mesh           connect.MeshAddress
	out, notes     io.Writer
}

// NewDelete returns "delete".
func NewDelete() *cobra.Command {
	var c deleteCommand
	cmd := &cobra.Command{
		Use:   "delete (KIND NAME... | KIND/NAME... | -f PATH | staged NAME)",
		Short: "Remove objects of the configuration, or an object that is held for initializers",
		Long: `Delete removes objects: no review begins with them any more, those that did are finished, hosts are told, and then they are
gone. With --wait it returns when no dispatcher judges a review by them any more: a host can be stopped then.

With -f it removes the objects of files, those that "portcullis apply -f" made of them. Configurations of webhooks are removed first, then
HookRoutes, Clusters and Roles. The mesh checks all before it removes one; an object that is not there is an error once the others are removed.

"delete staged NAME" ends the hold of an object that waits for initializers: its CREATE is answered with an error.
` + configureUsage,
		Example: `  portcullis delete vwc policy --wait --ready-file /tmp/ready.json
  portcullis delete HookRoute/policy Role/authors
  portcullis delete -f conf.d --ignore-not-found
  portcullis delete staged prod-1/pods/shop/web-1`,
		ValidArgsFunction: completeKinds,
		RunE: func(cmd *cobra.Command, args []string) error {
			c.out, c.notes = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return c.run(cmd, args)
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&c.files, "filename", "f", nil, filenameUsage)
	f.BoolVar(&c.wait, "wait", false, "wait until no review is judged by them any more")
	f.BoolVar(&c.ignoreNotFound, "ignore-not-found", false, "no error for objects that are not there")
	cli.DryRunFlag(cmd, &c.dryRun)
	f.StringVar(&c.expect, "expect", "", "version that the object must still have; for one object")
	cli.ProgressFlag(cmd, &c.progress)
	f.DurationVar(&c.timeout, "timeout", time.Minute, "how long that may take")
	c.mesh.Bind(f)
	return cli.WithSettings(cmd)
}

func (c *deleteCommand) run(cmd *cobra.Command, args []string) error {
	if names, ok := mesh.StagedNames(args); ok {
		return c.staged(cmd, names)
	}
	keys, err := c.keys(cmd, args)
	if err != nil {
		return err
	}
	if c.expect != "" && len(keys) > 1 {
		return fmt.Errorf("--expect is the version of one object, and these are %d: remove them one by one", len(keys))
	}
	slices.SortStableFunc(keys, func(a, b *configv1.ConfigKey) int {
		return cmp.Compare(removalRank(a.GetKind()), removalRank(b.GetKind()))
	})
	if c.dryRun == cli.DryRunClient {
		return c.say(keys, "would be removed (client dry run)")
	}
	return c.mesh.Config(cmd.Context(), c.timeout, func(ctx context.Context, client configv1.ConfigServiceClient) error {
		return c.remove(ctx, client, keys)
	})
}

// keys are the objects that the arguments or the files name.
func (c *deleteCommand) keys(cmd *cobra.Command, args []string) ([]*configv1.ConfigKey, error) {
	switch {
	case len(c.files) == 0:
		keys, err := keysNamed(args)
		return keys, besideKinds(cmd, err)
	case len(args) > 0:
		return nil, errors.New("objects are named by arguments or by files, not by both")
	}
	objects, err := documents(cmd, c.files)
	return keysOf(objects), err
}

func keysOf(objects []config.Object) []*configv1.ConfigKey {
	keys := make([]*configv1.ConfigKey, len(objects))
	for i := range objects {
		keys[i] = &configv1.ConfigKey{Kind: objects[i].Kind, Name: objects[i].Name}
	}
	return keys
}

// removalRank orders kinds: a hook that has lost its HookRoute would be called elsewhere, and an identity that has lost its Role may
// remove nothing.
func removalRank(kind string) int {
	return slices.Index([]string{kinds.HookRouteKind, kinds.ClusterKind, kinds.RoleKind}, kind) // others first
}

// remove removes objects after the mesh has checked all of them.
func (c *deleteCommand) remove(ctx context.Context, client configv1.ConfigServiceClient, keys []*configv1.ConfigKey) error {
	request := func(key *configv1.ConfigKey, dry bool) *configv1.DeleteRequest {
		return &configv1.DeleteRequest{Key: key, DryRun: dry, ExpectedResourceVersion: c.expect}
	}
	var there []*configv1.ConfigKey
	var missing error
	for _, key := range keys {
		switch _, err := client.Delete(ctx, request(key, true)); {
		case err == nil:
			there = append(there, key)
		case status.Code(err) != codes.NotFound:
			return err
		case !c.ignoreNotFound && missing == nil:
			missing = err
		}
	}
	if c.dryRun == cli.DryRunServer {
		if err := c.say(there, "would be removed (dry run)"); err != nil {
			return err
		}
		return missing
	}
	var last *configv1.Revision
	for _, key := range there {
		answer, err := client.Delete(ctx, request(key, false))
		if err == nil {
			last, err = answer.GetRevision(), c.say([]*configv1.ConfigKey{key}, "is being removed")
		}
		if err != nil {
			return err
		}
	}
	if c.wait && last != nil {
		w := wait{
			request: &configv1.WaitRequest{Revision: last, Released: true}, timeout: c.timeout,
			done: "have let go of it", tell: printer.NewProgress(c.notes, c.progress),
		}
		if err := w.until(ctx, client); err != nil {
			return err
		}
	}
	return missing
}

func (c *deleteCommand) say(keys []*configv1.ConfigKey, what string) error {
	for _, key := range keys {
		if _, err := fmt.Fprintf(c.out, "%s %s\n", Name(key), what); err != nil {
			return err
		}
	}
	return nil
}
