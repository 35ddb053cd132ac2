package policy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/shadow"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// maxCases is how many cases promote prints: shadow report has all.
const maxCases = 20

type promoteCommand struct {
	cluster, mode string
	since         time.Duration
	force         bool
	applier       configcli.Applier
	dryRun        bool
	mesh          connect.MeshAddress
}

func newPromoteCommand() *cobra.Command {
	var c promoteCommand
	cmd := &cobra.Command{
		Use:   "promote NAME --cluster CLUSTER --mode MODE",
		Short: "Change the mode of a Policy in one cluster",
		Long: `Promote sets spec.modeByCluster of a Policy in the store of the mesh, and returns when every live dispatcher judges by it. A policy begins in the
mode shadow; warn and enforce follow, one cluster after the other, and shadow again takes the policy back.

A policy in shadow that would have denied requests of the cluster within --since, or failed for them, is not promoted: the requests are listed.
Mend the policy or the objects, or add --force. With files as the configuration, write the mode there.

Exit codes: 0 when the mode is in force; 1 when the policy is not promoted; 2 when the command failed; 3 when dispatchers are behind.`,
		Example: `  portcullis policy promote no-latest-images --cluster trial --mode warn
  portcullis policy promote no-latest-images --cluster trial --mode enforce --since 1h
  portcullis policy promote no-latest-images --cluster trial --mode shadow`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name one Policy: `portcullis get policies` lists them")
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.cluster, "cluster", "", "name of the cluster; required")
	f.StringVar(&c.mode, "mode", "", "shadow, warn or enforce; required")
	f.DurationVar(&c.since, "since", 24*time.Hour, "how far to look back for requests that the policy would have denied; counts are of whole hours")
	f.BoolVar(&c.force, "force", false, "promote a policy that would have denied requests")
	f.BoolVar(&c.dryRun, "dry-run", false, "check all, and change nothing")
	f.StringArrayVar(&c.applier.Acknowledge, "acknowledge", nil, "code of a danger that you take upon yourself; may be given several times")
	f.DurationVar(&c.applier.Timeout, "timeout", 30*time.Second, "how long it may take until every live dispatcher judges by it")
	cli.ProgressFlag(cmd, &c.applier.Progress)
	c.mesh.Bind(f)
	cmd.RunE = c.run
	return cli.WithSettings(cmd)
}

func (c *promoteCommand) run(cmd *cobra.Command, args []string) error {
	switch mode := kinds.PolicyMode(c.mode); {
	case c.cluster == "":
		return errors.New("--cluster is missing: name the cluster")
	case mode != kinds.ModeShadow && mode != kinds.ModeWarn && mode != kinds.ModeEnforce:
		return errors.New("--mode: use shadow, warn or enforce")
	}
	if c.dryRun {
		c.applier.DryRun = cli.DryRunServer
	}
	c.applier.Out, c.applier.Notes = cmd.OutOrStdout(), cmd.ErrOrStderr()
	return c.mesh.Use(cmd.Context(), c.applier.Timeout, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		client := configv1.NewConfigServiceClient(conn)
		known, err := client.Get(ctx, &configv1.GetRequest{Key: &configv1.ConfigKey{Kind: kinds.PolicyKind, Name: args[0]}})
		if err != nil {
			return err
		}
		stored := known.GetObject()
		if stored.GetResourceVersion() == "" {
			return fmt.Errorf("the source %s has Policy/%s, and the mesh does not write it: put %s into spec.modeByCluster there",
				stored.GetSource(), args[0], c.cluster)
		}
		before, err := decode(stored.GetManifest().GetRaw())
		if err != nil {
			return err
		}
		if err := c.check(ctx, conn, before); err != nil {
			return err
		}
		manifest, err := withMode(stored.GetManifest().GetRaw(), c.cluster, c.mode)
		if err != nil {
			return err
		}
		after, err := decode(manifest)
		if err != nil {
			return err
		}
		return c.applier.Apply(ctx, client, *after, stored.GetResourceVersion())
	})
}

// check returns an error if the policy is not to be promoted.
func (c *promoteCommand) check(ctx context.Context, conn grpc.ClientConnInterface, o *config.Object) error {
	spec := &o.Short.Spec
	if !spec.AppliesIn(c.cluster) {
		return fmt.Errorf("%s is not in force in cluster %s: add it to spec.clusters", o.Key, c.cluster)
	}
	if c.force || spec.ModeIn(c.cluster) != kinds.ModeShadow || kinds.PolicyMode(c.mode) == kinds.ModeShadow {
		return nil
	}
	report, err := shadow.Ask(ctx, conn, &c.mesh, shadow.Query{Cluster: c.cluster, Hook: o.Name, Since: c.since}, c.applier.Notes)
	if err != nil {
		return err
	}
	denied, changed, calls := report.Totals(o.Key.String())
	switch {
	case denied > 0:
		if err := report.Write(c.applier.Notes, maxCases); err != nil {
			return err
		}
		return &cli.CodedError{Code: cli.ExitDenied, Err: fmt.Errorf(
			"%s stays in shadow: in cluster %s it would have denied %d of %d requests within %s; mend the policy or the objects, or add --force",
			o.Key, c.cluster, denied, calls, c.since)}
	case calls == 0:
		_, err = fmt.Fprintf(c.applier.Notes, "in shadow %s has judged no request of cluster %s within %s\n", o.Key, c.cluster, c.since)
	case spec.Mutates():
		_, err = fmt.Fprintf(c.applier.Notes, "in shadow %s would have changed %d of %d requests of cluster %s within %s\n",
			o.Key, changed, calls, c.cluster, c.since)
	default:
		_, err = fmt.Fprintf(c.applier.Notes, "in shadow %s has allowed all %d requests of cluster %s within %s\n", o.Key, calls, c.cluster, c.since)
	}
	return err
}

// decode returns the Policy of a manifest.
func decode(manifest []byte) (*config.Object, error) {
	objects, problems := configcli.NewDecoder().Decode("", manifest)
	if err := problems.Err(); err != nil || len(objects) != 1 || objects[0].Short == nil {
		return nil, cmp.Or(err, errors.New("the mesh has a document that is no Policy"))
	}
	return &objects[0], nil
}

// withMode is the manifest of a Policy with the mode in a cluster.
func withMode(manifest []byte, cluster, mode string) ([]byte, error) {
	var document map[string]any
	read := json.NewDecoder(bytes.NewReader(manifest))
	read.UseNumber()
	if err := read.Decode(&document); err != nil {
		return nil, fmt.Errorf("the document of the policy: %w", err)
	}
	spec, _ := document["spec"].(map[string]any)
	modes, _ := spec["modeByCluster"].(map[string]any)
	if modes == nil {
		modes = map[string]any{}
	}
	modes[cluster], spec["modeByCluster"] = mode, modes
	return json.Marshal(document)
}
