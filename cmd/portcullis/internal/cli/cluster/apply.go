package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registrar"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
)

// againPoll is how often it is looked whether it is time to write entries once more.
const againPoll = time.Second

// apiServer is the way to the API server of the cluster.
type apiServer struct{ connect.APIServer }

func (a *apiServer) registrar() (*registrar.Registrar, error) {
	config, err := a.Config()
	if err != nil {
		return nil, err
	}
	return registrar.New(config)
}

// write writes the entries of a registration into the cluster, or shows how they differ.
func (c *registerCommand) write(ctx context.Context, name string, r *registration.Registration, out, notes io.Writer) error {
	to, err := c.cluster.registrar()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	changes, err := to.Apply(ctx, r, c.diff || c.dryRun != cli.DryRunNone)
	warnWithoutConditions(notes, changes)
	if c.diff {
		return errors.Join(err, showDiff(out, changes))
	}
	err = errors.Join(err, showChanges(out, changes, c.dryRun != cli.DryRunNone))
	if err != nil || c.dryRun != cli.DryRunNone {
		return err
	}
	return writeAgain(ctx, to, name, r.Mutating.Name, notes)
}

// writeAgain writes entries once more that have changed (package touch). It returns at once if none has since it was last written again.
func writeAgain(ctx context.Context, to *registrar.Registrar, cluster, name string, notes io.Writer) error {
	again := registrar.Again{Cluster: cluster}
	for begun := time.Now(); ; {
		entries, err := to.Read(ctx, name)
		if err != nil {
			return err
		}
		now := time.Now()
		if err := to.WriteAgain(ctx, again.Due(entries, now), &again); err != nil || !again.Pending(entries) {
			return err
		}
		if now.Sub(begun) < againPoll {
			fmt.Fprintf(notes, "they are written once more in %s, since an API server can miss a change\n", touch.Delay)
		}
		if !clock.Sleep(ctx, againPoll) {
			return fmt.Errorf("the entries are there, and were not written once more, so that an API server may have missed the change: "+
				"run the same command again: %w", ctx.Err())
		}
	}
}

// warnWithoutConditions warns of entries whose conditions the API server does not keep.
func warnWithoutConditions(notes io.Writer, changes []registrar.Diff) {
	for _, c := range changes {
		if warning := c.Warning(); warning != "" {
			fmt.Fprintf(notes, "warning: %s\n", warning)
		}
	}
}

func showChanges(out io.Writer, changes []registrar.Diff, dryRun bool) error {
	suffix := ""
	if dryRun {
		suffix = " (dry run)"
	}
	for _, c := range changes {
		if _, err := fmt.Fprintf(out, "%s %s%s\n", c.Object, c.Action, suffix); err != nil {
			return err
		}
	}
	return nil
}

// errDiffers makes the command end with the exit code for differences.
var errDiffers = &cli.CodedError{Code: cli.ExitDenied}

// showDiff prints how the objects of the cluster would change. The error is errDiffers if one does.
func showDiff(out io.Writer, changes []registrar.Diff) error {
	var differs error
	for _, c := range changes {
		before, err := text(c.Before)
		if err != nil {
			return err
		}
		after, err := text(c.After)
		if err != nil {
			return err
		}
		diff, err := configcli.Unified(c.Object, before, after)
		if err != nil {
			return err
		}
		if diff != "" {
			differs = errDiffers
		}
		if _, err := io.WriteString(out, diff); err != nil {
			return err
		}
	}
	return differs
}

// text is an object as YAML; empty for none.
func text(o runtime.Object) (string, error) {
	if o == nil {
		return "", nil
	}
	data, err := yaml.Marshal(o)
	return string(data), err
}

func oneCluster(verb string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("name one cluster: portcullis cluster %s NAME, as its Cluster document has it", verb)
		}
		return nil
	}
}

// formUsage is the form of output of --print alone.
const formUsage = "yaml or json, for the output (default:  " + printer.YAML + ")"
