package config

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registrar"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// maxBreakGlass bounds --for. A break-glass that is needed for longer is a change of the hooks.
const maxBreakGlass = 24 * time.Hour

type bypassCommand struct {
	cluster  string
	life     time.Duration
	reason   string
	timeout  time.Duration
	progress string
	mesh     connect.MeshAddress
}

// NewBypass returns "bypass" with its commands.
func NewBypass() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bypass",
		Short: "Let all writes of a cluster pass, for a time (break-glass)",
		Long: `Bypass is for emergencies: while it is on, no hook is called for the cluster, and every write passes.

It is spec.bypass.breakGlass of the Cluster document: with files as the configuration, write it there. Each answer has a
warning, which kubectl prints, and the audit annotation "bypass"; /readyz, the log, portcullis_break_glass_until_timestamp_seconds and
portcullis_review_bypassed_total show it too. It ends by itself.

If the mesh or the way to it is down, take it off the writes of the cluster instead. This line empties its entries, and dispatchers that
live leave them so:

  ` + registrar.BreakGlassOn(registration.DefaultName) + `

The end of it, after which a mesh that keeps the entries writes them again:

  ` + registrar.BreakGlassOff(registration.DefaultName),
		Example: `  portcullis bypass on --cluster prod-1 --for 30m --reason "INC-42: imagepolicy refuses everything" --ready-file /tmp/ready.json
  portcullis bypass off --cluster prod-1 --ready-file /tmp/ready.json`,
	}
	return cli.Group(cmd, newBypassOn(), newBypassOff())
}

func newBypassOn() *cobra.Command {
	var c bypassCommand
	cmd := &cobra.Command{
		Use:   "on --cluster NAME --for DURATION --reason TEXT",
		Short: "Begin a break-glass, or change its end",
		Long: `On lets all writes of a cluster pass until the time is over, and returns when every live dispatcher does so. It is written to
the Cluster document, which an operator may change. A second call replaces the end and the reason of the first.`,
		Example: `  portcullis bypass on --cluster prod-1 --for 30m --reason "INC-42: imagepolicy refuses everything" --ready-file /tmp/ready.json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case c.life <= 0 || c.life > maxBreakGlass:
				return fmt.Errorf("--for: say how long it is on, at most %s, for example --for 30m", maxBreakGlass)
			case c.reason == "":
				return errors.New("--reason is missing: it is shown to everybody whose writes pass")
			}
			until := time.Now().Add(c.life).UTC().Truncate(time.Second)
			return c.run(cmd, &kinds.BreakGlass{Until: until.Format(time.RFC3339), Reason: c.reason})
		},
	}
	cmd.Flags().DurationVar(&c.life, "for", 0, "how long it is on, at most 24h")
	cmd.Flags().StringVar(&c.reason, "reason", "", "why, for the log, the audit log and the clients")
	return c.bind(cmd)
}

func newBypassOff() *cobra.Command {
	var c bypassCommand
	return c.bind(&cobra.Command{
		Use:   "off --cluster NAME",
		Short: "End a break-glass",
		Long: `Off ends a break-glass before its time, and returns when every live dispatcher calls the hooks of the cluster again. Without
a break-glass it does nothing.`,
		Example: `  portcullis bypass off --cluster prod-1 --ready-file /tmp/ready.json`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.run(cmd, nil) },
	})
}

func (c *bypassCommand) bind(cmd *cobra.Command) *cobra.Command {
	f := cmd.Flags()
	f.StringVar(&c.cluster, "cluster", "", "name of the cluster")
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long it may take until every live dispatcher judges by it")
	cli.ProgressFlag(cmd, &c.progress)
	c.mesh.Bind(f)
	return cli.WithSettings(cmd)
}

// run puts a break-glass in the document of the cluster, or removes the present one, and waits until it is in force.
func (c *bypassCommand) run(cmd *cobra.Command, glass *kinds.BreakGlass) error {
	if c.cluster == "" {
		return errors.New("--cluster is missing: name the Cluster document")
	}
	return c.mesh.Config(cmd.Context(), c.timeout, func(ctx context.Context, client configv1.ConfigServiceClient) error {
		key := &configv1.ConfigKey{Kind: kinds.ClusterKind, Name: c.cluster}
		known, err := client.Get(ctx, &configv1.GetRequest{Key: key})
		if err != nil {
			return err
		}
		o := known.GetObject()
		if o.GetResourceVersion() == "" {
			return fmt.Errorf("%s comes from the source %s, which the mesh does not write: put spec.bypass.breakGlass there", Name(key), o.GetSource())
		}
		manifest, changed, err := withBreakGlass(o.GetManifest().GetRaw(), glass)
		if err != nil {
			return err
		}
		if !changed {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "no break-glass is on for cluster %s\n", c.cluster)
			return err
		}
		answer, err := client.Apply(ctx, &configv1.ApplyRequest{
			Manifests:                []*admissionv1.Object{{Raw: manifest}},
			ExpectedResourceVersions: map[string]string{Name(key): o.GetResourceVersion()},
		})
		if err != nil {
			return err
		}
		if err := printBreakGlass(cmd.OutOrStdout(), c.cluster, glass); err != nil {
			return err
		}
		w := wait{
			request: &configv1.WaitRequest{Revision: answer.GetRevision()}, timeout: c.timeout,
			done: "judge by it", tell: printer.NewProgress(cmd.ErrOrStderr(), c.progress),
		}
		return w.until(ctx, client)
	})
}

// withBreakGlass is the manifest of a Cluster with a break-glass, or without one if that is nil; false if nothing changes.
func withBreakGlass(manifest []byte, glass *kinds.BreakGlass) ([]byte, bool, error) {
	var document map[string]any
	read := json.NewDecoder(bytes.NewReader(manifest))
	read.UseNumber()
	if err := read.Decode(&document); err != nil {
		return nil, false, fmt.Errorf("the document of the cluster: %w", err)
	}
	spec, _ := document["spec"].(map[string]any)
	if spec == nil {
		spec = map[string]any{}
	}
	bypass, _ := spec["bypass"].(map[string]any)
	switch {
	case glass != nil && bypass == nil:
		bypass = map[string]any{"breakGlass": glass}
	case glass != nil:
		bypass["breakGlass"] = glass
	case bypass["breakGlass"] == nil:
		return nil, false, nil
	default:
		delete(bypass, "breakGlass")
	}
	document["spec"], spec["bypass"] = spec, bypass
	changed, err := json.Marshal(document)
	return changed, true, err
}

func printBreakGlass(out io.Writer, cluster string, glass *kinds.BreakGlass) error {
	text := fmt.Sprintf("the hooks of cluster %s are called again\n", cluster)
	if glass != nil {
		text = fmt.Sprintf("no hook is called for cluster %s until %s: every write passes\n", cluster, glass.Until)
	}
	_, err := io.WriteString(out, text)
	return err
}
