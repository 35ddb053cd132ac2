package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registrar"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

type unregisterCommand struct {
	cluster  apiServer
	mesh     connect.MeshAddress
	document bool
	object   string // name of the entries
	dryRun   cli.DryRun
	progress string
	timeout  time.Duration
}

func newUnregisterCommand() *cobra.Command {
	var c unregisterCommand
	cmd := &cobra.Command{
		Use:   "unregister NAME",
		Short: "Remove the entries of a cluster, so that its API servers no longer call the mesh",
		Long: `Unregister deletes the objects of "portcullis cluster join" and "portcullis cluster register --apply" in a cluster, and waits until they are
gone: the webhook configurations, and the service account of dispatchers. Objects of the same name that were not made for this cluster
stay. From then on no hook of the mesh judges writes of the cluster.

With --remove-document the mesh first lets go of the cluster: it no longer keeps the entries, and the API server again calls the webhook
configurations that the mesh follows. Afterwards the command removes the Cluster document from the store, and waits until no dispatcher
knows the cluster. Without it no mesh is needed, only rights in the cluster; but a dispatcher that lives and keeps the entries would write
them again, and then the command refuses. In an emergency this line takes the mesh off the writes of the cluster, in each state of the mesh:

  ` + registrar.BreakGlassOn(registration.DefaultName) + `
` + connect.Usage,
		Example: `  portcullis cluster unregister prod-1 --kube-context prod-1
  portcullis cluster unregister prod-1 --kube-context prod-1 --remove-document --context prod
  portcullis cluster unregister prod-1 --kubeconfig prod-1.kubeconfig --dry-run`,
		Args:              oneCluster("unregister"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	c.cluster.Bind(f)
	c.mesh.Bind(f)
	f.BoolVar(&c.document, "remove-document", false, "remove the Cluster document from the store of the mesh too")
	f.StringVar(&c.object, "name", registration.DefaultName, "name of the two objects")
	cli.DryRunFlag(cmd, &c.dryRun)
	cli.ProgressFlag(cmd, &c.progress)
	f.DurationVar(&c.timeout, "timeout", time.Minute, "how long it may take until all is gone")
	return cli.WithSettings(cmd)
}

func (c *unregisterCommand) run(ctx context.Context, name string, out, notes io.Writer) error {
	if c.document {
		if _, err := c.mesh.Files(); err != nil { // before anything is removed
			return err
		}
	}
	from, err := c.cluster.registrar()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	dry := c.dryRun != cli.DryRunNone
	change := configcli.Applier{Timeout: c.timeout, Progress: c.progress, Out: out, Notes: notes}
	if dry {
		change.DryRun = cli.DryRunServer
	}
	if err := c.release(ctx, from, name, change); err != nil {
		return err
	}
	changes, err := from.Remove(ctx, name, c.object, dry)
	if err := errors.Join(err, showChanges(out, changes, dry)); err != nil {
		return err
	}
	others, err := from.Leave(ctx, name, c.object, dry)
	if err := errors.Join(err, showChanges(out, others, dry)); err != nil {
		return err
	}
	if !c.document {
		return nil
	}
	if dry {
		_, err := fmt.Fprintf(out, "%s/%s would be removed (dry run)\n", kinds.ClusterKind, name)
		return err
	}
	if slices.ContainsFunc(changes, func(c registrar.Diff) bool { return c.Action == registrar.Deleted }) {
		clock.Sleep(ctx, entriesLinger)
	}
	return c.mesh.Config(ctx, c.timeout, func(ctx context.Context, client configv1.ConfigServiceClient) error {
		return c.removeDocument(ctx, client, name, change)
	})
}

// release has the mesh let go of the cluster: it no longer keeps the entries, which it would write again, and the webhook configurations
// that it follows are called by the API server. That goes before the entries, by which the mesh calls them.
func (c *unregisterCommand) release(ctx context.Context, from *registrar.Registrar, name string, change configcli.Applier) error {
	if c.document {
		if err := c.removeDuties(ctx, name, change); err != nil || change.DryRun != cli.DryRunNone {
			return err
		}
	}
	if err := c.awaitFollowed(ctx, from, name); err != nil {
		return err
	}
	for {
		kept, err := from.Kept(ctx, c.object)
		switch {
		case err != nil || !kept:
			return err
		case !c.document:
			return fmt.Errorf("the mesh keeps the entries of %s, and would write them again: "+
				"use --remove-document, or remove spec.registration from its Cluster document first, and wait 15 s. In an emergency empty them, "+
				"and the mesh leaves them so: %s", name, registrar.BreakGlassOn(c.object))
		}
		if !clock.Sleep(ctx, keeperPoll) {
			return fmt.Errorf("a dispatcher still keeps the entries of %s: look at its log, and run the same command again", name)
		}
	}
}

// removeDuties removes spec.registration and spec.follow from the document of the cluster, if it has them.
func (c *unregisterCommand) removeDuties(ctx context.Context, name string, change configcli.Applier) error {
	return c.mesh.Config(ctx, c.timeout, func(ctx context.Context, client configv1.ConfigServiceClient) error {
		document, stored, err := documentInForce(ctx, client, name)
		if err != nil || document == nil || document.Cluster.Spec.Registration == nil && document.Cluster.Spec.Follow == nil {
			return err
		}
		without, err := released(document)
		if err != nil {
			return err
		}
		return change.Apply(ctx, client, without, stored.GetResourceVersion())
	})
}

// awaitFollowed waits until the webhook configurations that the mesh follows are called again.
func (c *unregisterCommand) awaitFollowed(ctx context.Context, from *registrar.Registrar, name string) error {
	for {
		off, err := from.SwitchedOff(ctx)
		if err != nil || len(off) == 0 {
			return err
		}
		if !c.document {
			return fmt.Errorf("the mesh follows %s, which the API server of %s does not call: use --remove-document, or remove spec.follow from its Cluster "+
				"document first; with a dead mesh switch them on by hand (docs/clusters.md, The way back)", strings.Join(off, ", "), name)
		}
		if !clock.Sleep(ctx, keeperPoll) {
			return fmt.Errorf("the cluster does not call %s, which the mesh has followed and has not switched on: "+
				"look at the log of the dispatchers, or do it by hand (docs/clusters.md, The way back), and run the same command again",
				strings.Join(off, ", "))
		}
	}
}

// removeDocument removes the Cluster document, once the copies of followed webhook configurations are gone.
func (c *unregisterCommand) removeDocument(ctx context.Context, client configv1.ConfigServiceClient, name string, change configcli.Applier) error {
	for {
		left, err := copies(ctx, client, name)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return change.Remove(ctx, client, kinds.ClusterKind, name)
		}
		if !clock.Sleep(ctx, keeperPoll) {
			return fmt.Errorf("the mesh still has %s: look at the log of the dispatchers, and run the same command again", strings.Join(left, ", "))
		}
	}
}

// copies names the copies of webhook configurations of a cluster, and their HookRoutes.
func copies(ctx context.Context, client configv1.ConfigServiceClient, cluster string) ([]string, error) {
	all, err := client.List(ctx, &configv1.ListRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, o := range all.GetObjects() {
		var manifest metav1.PartialObjectMetadata
		if err := json.Unmarshal(o.GetManifest().GetRaw(), &manifest); err != nil {
			continue // a document that cannot be read is none of the mesh's
		}
		if of, _, _ := strings.Cut(manifest.Annotations[config.FollowedAnnotation], "/"); of == cluster {
			names = append(names, configcli.Name(o.GetKey()))
		}
	}
	return names, nil
}

// keeperPoll is how often it is looked whether a dispatcher has given its Lease back.
const keeperPoll = 200 * time.Millisecond

// entriesLinger is how long API servers may still call the mesh by entries that are deleted: they learn of it by a watch. The mesh
// refuses the reviews of a cluster that it does not know.
const entriesLinger = 2 * time.Second
