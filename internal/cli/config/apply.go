package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/config/kinds"
	"github.com/portcullis-mesh/portcullis/config/service"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/internal/cli/printer"
)

type applyCommand struct {
	files       []string
	dryRun      bool
	wait        bool
	timeout     time.Duration
	acknowledge []string
	expect      []string
	progress    string
	mesh        connect.MeshAddress
	output      string
}

// NewApply returns "apply".
func NewApply() *cobra.Command {
	var c applyCommand
	cmd := &cobra.Command{
		Use:   "apply -f PATH",
		Short: "Create and update objects of the configuration",
		Long: `Apply makes the objects of files, directories or standard input be as they are there: all of them, or none. What is wrong
with one is said with its file and line. What is dangerous, like a hook on leases that fails closed, has to be acknowledged
by its code.

With --wait it returns when every live dispatcher judges new reviews by what was applied, and says at the end of --timeout which
do not. With --expect nothing is applied over what somebody else has changed meanwhile.
` + configureUsage,
		Example: `  portcullis apply -f hooks.yaml --ready-file /tmp/ready.json --wait
  portcullis apply -f conf.d --dry-run -o json --server mesh.example.com:8444 --ca ca.crt --cert me.crt --key me.key
  portcullis apply -f policy.yaml --acknowledge danger-kube-system`,
		Args: filesByFlag,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	f := cmd.Flags()
	f.StringArrayVarP(&c.files, "filename", "f", nil, filenameUsage)
	cli.DryRunFlag(cmd, &c.dryRun, "have the mesh check it and show what would be done, and do nothing")
	f.BoolVar(&c.wait, "wait", false, "wait until every live dispatcher judges by it")
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long that, and applying, may take")
	f.StringArrayVar(&c.acknowledge, "acknowledge", nil, "code of a danger that you take upon yourself; may be given several times")
	f.StringArrayVar(&c.expect, "expect", nil,
		"version that an object must still have, as KIND/NAME=VERSION; 0 for one that must not be there; may be given several times")
	cli.ProgressFlag(cmd, &c.progress)
	cli.OutputFlag(cmd, &c.output, "json for tools (default: text)", printer.JSON)
	c.mesh.Bind(f)
	return cli.WithSettings(cmd)
}

func (c *applyCommand) run(cmd *cobra.Command) error {
	if len(c.files) == 0 {
		return errors.New(`-f is missing: name a file or directory, or "-"`)
	}
	expected, err := expectations(c.expect)
	if err != nil {
		return err
	}
	tell := printer.NewProgress(cmd.ErrOrStderr(), c.progress)
	defer tell.Done()
	tell.Sayf("reading")
	objects, err := documents(cmd, c.files)
	if err != nil {
		return c.refuse(cmd.OutOrStdout(), err)
	}
	return c.mesh.Config(cmd.Context(), c.timeout, func(ctx context.Context, client configv1.ConfigServiceClient) error {
		tell.Sayf("checking and storing %d objects", len(objects))
		answer, err := client.Apply(ctx, &configv1.ApplyRequest{
			Manifests: manifests(objects), DryRun: c.dryRun, Acknowledge: c.acknowledge, ExpectedResourceVersions: expected,
		})
		tell.Done()
		if status.Code(err) == codes.DeadlineExceeded {
			return fmt.Errorf("no answer within %v, and nobody can say whether it is stored: apply again, what is there already stays as it is", c.timeout)
		}
		if err != nil {
			return c.refuse(cmd.OutOrStdout(), refusalOf(err, objects))
		}
		placeFindings(answer.GetFindings(), objects)
		if err := c.print(cmd.OutOrStdout(), cmd.ErrOrStderr(), answer); err != nil || !c.wait || c.dryRun {
			return err
		}
		w := wait{request: &configv1.WaitRequest{Revision: answer.GetRevision()}, timeout: c.timeout, done: "judge by it", tell: tell}
		if err := w.until(ctx, client); err != nil {
			return err
		}
		return printEntryDrift(ctx, client, cmd.ErrOrStderr())
	})
}

// refuse returns the error, and with -o json prints it for tools too.
func (c *applyCommand) refuse(out io.Writer, err error) error {
	if c.output == printer.JSON {
		return errors.Join(err, printRefusal(out, err))
	}
	return err
}

// printEntryDrift prints findings about clusters whose entries were made from another configuration.
func printEntryDrift(ctx context.Context, client configv1.ConfigServiceClient, notes io.Writer) error {
	answer, err := client.List(ctx, &configv1.ListRequest{Kind: kinds.ClusterKind})
	if err != nil {
		return err
	}
	var findings []*configv1.Finding
	for _, o := range answer.GetObjects() {
		for _, f := range o.GetFindings() {
			if f.GetCode() == service.CodeEntryDrift {
				findings = append(findings, f)
			}
		}
	}
	printFindings(notes, findings)
	return nil
}

func (c *applyCommand) print(out, notes io.Writer, answer *configv1.ApplyResponse) error {
	return printer.Print(out, c.output, printer.Message{Message: answer}, func() error {
		printFindings(notes, answer.GetFindings())
		suffix := ""
		if c.dryRun {
			suffix = " (dry run)"
		}
		for i, o := range answer.GetObjects() {
			if _, err := fmt.Fprintf(out, "%s %s%s\n", Name(o.GetKey()), answer.GetResults()[i], suffix); err != nil {
				return err
			}
		}
		return nil
	})
}
