package config

import (
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
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
)

type applyCommand struct {
	files       []string
	dryRun      cli.DryRun
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
		Long: `Apply makes the objects of files, directories or standard input be as they are there: all of them, or none. Errors have
file and line. A danger, like a hook on leases that fails closed, has to be acknowledged by its code.

With --dry-run, or --dry-run=server, the mesh checks it and nothing is changed. --dry-run=client reads the documents and asks no mesh;
"portcullis lint" finds more.

With --wait it returns when every live dispatcher judges new reviews by the applied objects, and says at the end of --timeout which
do not. With --expect nothing is applied over a change that another author has made meanwhile.
` + configureUsage,
		Example: `  portcullis apply -f hooks.yaml --ready-file /tmp/ready.json --wait
  portcullis apply -f conf.d --dry-run -o json --server mesh.example.com:8444 --ca ca.crt --cert me.crt --key me.key
  portcullis apply -f policy.yaml --acknowledge danger-kube-system`,
		Args: filesByFlag,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	f := cmd.Flags()
	f.StringArrayVarP(&c.files, "filename", "f", nil, filenameUsage)
	cli.DryRunFlag(cmd, &c.dryRun)
	f.BoolVar(&c.wait, "wait", false, "wait until every live dispatcher judges by it, and the mesh has written the entries that it keeps")
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long that, and applying, may take")
	f.StringArrayVar(&c.acknowledge, "acknowledge", nil, "code of a danger that you take upon yourself; may be given several times")
	f.StringArrayVar(&c.expect, "expect", nil,
		"version that an object must still have, as KIND/NAME=VERSION; 0 for an object that must not exist; may be given several times")
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
	if c.dryRun == cli.DryRunClient {
		tell.Done()
		return c.printRead(cmd.OutOrStdout(), objects)
	}
	return c.mesh.Config(cmd.Context(), c.timeout, func(ctx context.Context, client configv1.ConfigServiceClient) error {
		to := outputs{cmd.OutOrStdout(), cmd.ErrOrStderr(), tell}
		if err := c.apply(ctx, client, objects, expected, to); err != nil {
			return err
		}
		if !c.wait || c.dryRun != cli.DryRunNone {
			return nil
		}
		return c.awaitEntries(ctx, client, to)
	})
}

// outputs are where an apply prints.
type outputs struct {
	out, notes io.Writer
	tell       *printer.Progress
}

// apply has the mesh store the objects, and waits for it if it has to.
func (c *applyCommand) apply(
	ctx context.Context, client configv1.ConfigServiceClient, objects []config.Object, expected map[string]string, to outputs,
) error {
	tell := to.tell
	tell.Sayf("checking and storing %d objects", len(objects))
	answer, err := client.Apply(ctx, &configv1.ApplyRequest{
		Manifests: manifests(objects), DryRun: c.dryRun == cli.DryRunServer, Acknowledge: c.acknowledge, ExpectedResourceVersions: expected,
	})
	tell.Done()
	if status.Code(err) == codes.DeadlineExceeded {
		return fmt.Errorf("no answer within %v, so the outcome is unknown: apply again, an object that is stored already stays as it is", c.timeout)
	}
	if err != nil {
		return c.refuse(to.out, refusalOf(err, objects))
	}
	placeFindings(answer.GetFindings(), objects)
	if err := c.print(to.out, to.notes, answer); err != nil || !c.wait || c.dryRun != cli.DryRunNone {
		return err
	}
	w := wait{request: &configv1.WaitRequest{Revision: answer.GetRevision()}, timeout: c.timeout, done: "judge by it", tell: tell}
	return w.until(ctx, client)
}

// refuse returns the error, and with -o json prints it for tools too.
func (c *applyCommand) refuse(out io.Writer, err error) error {
	if c.output == printer.JSON {
		return errors.Join(err, printRefusal(out, err))
	}
	return err
}

// entriesPause is the time between two looks at entries that are waited for.
const entriesPause = 200 * time.Millisecond

// awaitEntries waits until the mesh has written the entries that it keeps, except where it cannot: a cluster that is away for long must
// not hold up each apply. It prints findings about these, and about clusters whose entries an operator has to make again.
func (c *applyCommand) awaitEntries(ctx context.Context, client configv1.ConfigServiceClient, to outputs) error {
	tell, notes := to.tell, to.notes
	defer tell.Done()
	for {
		answer, err := client.List(ctx, &configv1.ListRequest{Kind: kinds.ClusterKind})
		if err != nil {
			return err
		}
		behind := findingsOf(answer.GetObjects(), service.CodeEntriesBehind)
		if len(behind) == 0 {
			tell.Done()
			printFindings(notes, findingsOf(answer.GetObjects(), service.CodeEntriesNotKept, service.CodeEntryDrift))
			return nil
		}
		tell.Sayf("waiting for the entries of %d clusters", len(behind))
		if !clock.Sleep(ctx, entriesPause) {
			tell.Done()
			printFindings(notes, behind)
			return &cli.CodedError{Code: cli.ExitBehind, Err: fmt.Errorf(
				"each dispatcher judges by it, but after %v the entries of %d clusters are not written", c.timeout, len(behind))}
		}
	}
}

// findingsOf returns the findings about objects that have any of the codes.
func findingsOf(objects []*configv1.ConfigObject, codes ...string) []*configv1.Finding {
	var findings []*configv1.Finding
	for _, o := range objects {
		for _, f := range o.GetFindings() {
			if slices.Contains(codes, f.GetCode()) {
				findings = append(findings, f)
			}
		}
	}
	return findings
}

// printRead prints the objects of a client dry run: they have been read strictly, and the mesh does not know of them.
func (c *applyCommand) printRead(out io.Writer, objects []config.Object) error {
	if c.output == printer.JSON {
		return printer.WriteJSON(out, map[string]any{"objects": printer.Messages(keysOf(objects))})
	}
	for i := range objects {
		if _, err := fmt.Fprintf(out, "%s is valid (client dry run)\n", objects[i].Key); err != nil {
			return err
		}
	}
	return nil
}

func (c *applyCommand) print(out, notes io.Writer, answer *configv1.ApplyResponse) error {
	return printer.Print(out, c.output, printer.Message{Message: answer}, func() error {
		printFindings(notes, answer.GetFindings())
		suffix := ""
		if c.dryRun != cli.DryRunNone {
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
