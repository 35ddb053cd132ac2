package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// applyCommand is what the flags of apply say.
type applyCommand struct {
	files       []string
	dryRun      bool
	wait        bool
	timeout     time.Duration
	acknowledge []string
	target      target
	output      *choice
}

func newApplyCommand() *cobra.Command {
	var c applyCommand
	cmd := &cobra.Command{
		Use:   "apply -f PATH",
		Short: "Create and update objects of the configuration",
		Long: `Apply makes the objects of files, directories or standard input be as they are there: all of them, or none. What is wrong
with one is said with its file and line. What is dangerous, like a hook on leases that fails closed, has to be acknowledged
by its code.

With --wait it returns when every live dispatcher judges new reviews by what was applied.
` + configureUsage,
		Example: `  portcullis apply -f hooks.yaml --ready-file /tmp/ready.json --wait
  portcullis apply -f conf.d --dry-run -o json --server mesh.example.com:8444 --ca ca.crt --cert me.crt --key me.key
  portcullis apply -f policy.yaml --acknowledge danger-kube-system`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	f := cmd.Flags()
	f.StringArrayVarP(&c.files, "filename", "f", nil, `file or directory of objects; "-" is standard input; may be given several times`)
	f.BoolVar(&c.dryRun, "dry-run", false, "check and show what would be done, and do nothing")
	f.BoolVar(&c.wait, "wait", false, "wait until every live dispatcher judges by it")
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long that, and applying, may take")
	f.StringArrayVar(&c.acknowledge, "acknowledge", nil, "code of a danger that you take upon yourself; may be given several times")
	c.output = outputFlag(cmd, "json for tools (default: text)", formatJSON)
	c.target.bind(f)
	return withSettings(cmd)
}

func (c *applyCommand) run(cmd *cobra.Command) error {
	if len(c.files) == 0 {
		return errors.New(`-f is missing: name a file or directory, or "-"`)
	}
	objects, err := documents(cmd, c.files)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), c.timeout)
	defer cancel()
	notes := cmd.ErrOrStderr()
	return configured(&c.target, func(client configv1.ConfigServiceClient) error {
		if len(objects) > 1 {
			fmt.Fprintf(notes, "applying %d objects\n", len(objects))
		}
		answer, err := client.Apply(ctx, &configv1.ApplyRequest{Manifests: manifests(objects), DryRun: c.dryRun, Acknowledge: c.acknowledge})
		if err != nil {
			return err
		}
		if err := c.print(cmd.OutOrStdout(), notes, answer); err != nil || !c.wait || c.dryRun {
			return err
		}
		return waitFor(ctx, client, &configv1.WaitRequest{Revision: answer.GetRevision()}, notes)
	})
}

// print says what was done.
func (c *applyCommand) print(out, notes io.Writer, answer *configv1.ApplyResponse) error {
	if c.output.value == formatJSON {
		return writeMessage(out, answer)
	}
	printFindings(notes, answer.GetFindings())
	suffix := ""
	if c.dryRun {
		suffix = " (dry run)"
	}
	for i, o := range answer.GetObjects() {
		if _, err := fmt.Fprintf(out, "%s %s%s\n", name(o.GetKey()), answer.GetResults()[i], suffix); err != nil {
			return err
		}
	}
	return nil
}

// writeMessage writes a message as indented JSON.
func writeMessage(w io.Writer, m proto.Message) error {
	data, err := protojson.MarshalOptions{Indent: "  "}.Marshal(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", data)
	return err
}

// waitFor waits until every live dispatcher has a revision, and tells how far they are.
func waitFor(ctx context.Context, client configv1.ConfigServiceClient, r *configv1.WaitRequest, notes io.Writer) error {
	stream, err := client.Wait(ctx, r)
	if err != nil {
		return err
	}
	for last := ""; ; {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("it is stored, and not every dispatcher has it yet: %w; `portcullis get dispatchers` shows which", err)
		}
		all := len(answer.GetDispatchers())
		if text := fmt.Sprintf("%d of %d dispatchers have it", all-len(answer.GetBehind()), all); text != last {
			last = text
			fmt.Fprintln(notes, text)
		}
		if answer.GetDone() {
			return nil
		}
	}
}
