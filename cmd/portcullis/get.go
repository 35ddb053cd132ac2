package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// formatWide is -o with more columns.
const formatWide = "wide"

// getCommand is what the flags of get say.
type getCommand struct {
	watch   bool
	timeout time.Duration
	target  target
	output  *choice
}

func newGetCommand() *cobra.Command {
	var c getCommand
	cmd := &cobra.Command{
		Use:   "get [KIND [NAME]] | get dispatchers | get changes",
		Short: "Show objects of the configuration, the dispatchers, or who changed what",
		Long: `Get shows the objects of all sources, and whether they are valid, called, in force everywhere, and served: whether every hook that
is called over streams has a host on every dispatcher. With -o yaml it prints
what their authors wrote, which "portcullis apply" takes again.

With -w it shows each object again when something about it changes, until it is interrupted, which is no error. With -o json each
change is a line.

"get dispatchers" shows which configuration each live dispatcher judges by, and its state: Current, Behind what the store holds,
Diverging when it keeps an older version of something, Stopped when its configuration is too old to judge by. "get changes" shows
who changed what, the latest first. With -w they are looked at each second: a dispatcher is shown again when something has changed
about it but its age, and a change when it has been made, the latest last; with -o json each line holds all dispatchers, or one change.
` + configureUsage,
		Example: `  portcullis get --ready-file /tmp/ready.json
  portcullis get vwc policy -o yaml
  portcullis get hookroutes -w
  portcullis get dispatchers -o json
  portcullis get changes -w`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: completeKinds,
		RunE:              c.run,
	}
	f := cmd.Flags()
	f.BoolVarP(&c.watch, "watch", "w", false, "go on, and show what changes")
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long an answer may take, but not the stream of --watch")
	c.output = outputFlag(cmd, "how to print (default: a table)", formatJSON, formatYAML, formatWide)
	c.target.bind(f)
	return withSettings(cmd)
}

func (c *getCommand) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	if !c.watch {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	return configured(&c.target, func(client configv1.ConfigServiceClient) error {
		if len(args) == 1 {
			show, ok := map[string]func(ctx context.Context, client configv1.ConfigServiceClient, out, notes io.Writer) error{
				"dispatcher": c.dispatchers, "change": c.changes,
			}[strings.TrimSuffix(strings.ToLower(args[0]), "s")]
			if ok {
				return show(ctx, client, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
		}
		if len(args) == 2 || len(args) == 1 && strings.Contains(args[0], "/") {
			return c.one(ctx, client, cmd, args)
		}
		return c.list(ctx, client, cmd, args)
	})
}

// one shows one object.
func (c *getCommand) one(ctx context.Context, client configv1.ConfigServiceClient, cmd *cobra.Command, args []string) error {
	out, notes := cmd.OutOrStdout(), cmd.ErrOrStderr()
	key, err := keyNamed(args)
	if err != nil {
		return err
	}
	if c.watch {
		return c.follow(ctx, client, out, notes, &configv1.WatchRequest{Kind: key.GetKind(), Name: key.GetName()})
	}
	answer, err := client.Get(ctx, &configv1.GetRequest{Key: key})
	if err != nil {
		return err
	}
	switch c.output.value {
	case formatJSON:
		return writeMessage(out, answer.GetObject())
	case formatYAML:
		return writeManifest(out, answer.GetObject())
	}
	return c.table(out, []*configv1.ConfigObject{answer.GetObject()})
}

// list shows all objects, or those of a kind.
func (c *getCommand) list(ctx context.Context, client configv1.ConfigServiceClient, cmd *cobra.Command, args []string) error {
	kind := ""
	if len(args) == 1 {
		var err error
		if kind, err = kindNamed(args[0]); err != nil {
			return fmt.Errorf("%w, dispatchers or changes", err)
		}
	}
	if c.watch {
		return c.follow(ctx, client, cmd.OutOrStdout(), cmd.ErrOrStderr(), &configv1.WatchRequest{Kind: kind})
	}
	answer, err := client.List(ctx, &configv1.ListRequest{Kind: kind})
	if err != nil {
		return err
	}
	switch c.output.value {
	case formatJSON:
		return writeMessage(cmd.OutOrStdout(), answer)
	case formatYAML:
		for i, o := range answer.GetObjects() {
			if i > 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "---")
			}
			if err := writeManifest(cmd.OutOrStdout(), o); err != nil {
				return err
			}
		}
		return nil
	}
	printFindings(cmd.ErrOrStderr(), answer.GetFindings())
	if len(answer.GetObjects()) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "there are none: `portcullis apply -f FILE` makes some")
		return nil
	}
	return c.table(cmd.OutOrStdout(), answer.GetObjects())
}

// table prints objects in rows.
func (c *getCommand) table(out io.Writer, objects []*configv1.ConfigObject) error {
	rows := [][]string{c.head()}
	for _, o := range objects {
		rows = append(rows, c.row(o))
	}
	return writeTable(out, "", rows)
}

// head names the columns of the table.
func (c *getCommand) head() []string {
	head := []string{"OBJECT", "ACCEPTED", "IN ROTATION", "EFFECTIVE", "SERVED", "SOURCE"}
	if c.output.value == formatWide {
		head = append(head, "GENERATION", "VERSION", "CHANGED", "BY", "ORIGIN")
	}
	return head
}

// row is an object in a table.
func (c *getCommand) row(o *configv1.ConfigObject) []string {
	row := []string{name(o.GetKey())}
	for _, kind := range []string{"Accepted", "InRotation", "Effective", "Served"} {
		row = append(row, conditionText(o, kind))
	}
	row = append(row, o.GetSource())
	if c.output.value == formatWide {
		changed := ""
		if o.GetChanged() != nil {
			changed = o.GetChanged().AsTime().Format(time.RFC3339)
		}
		row = append(row, fmt.Sprint(o.GetGeneration()), cmp.Or(o.GetResourceVersion(), "-"), changed, o.GetActor(), o.GetOrigin())
	}
	return row
}

// conditionText is a condition in a cell: what it is, and if it is not true, why.
func conditionText(o *configv1.ConfigObject, kind string) string {
	for _, c := range o.GetConditions() {
		if c.GetType() != kind {
			continue
		}
		if c.GetStatus() == "True" {
			return "True"
		}
		return c.GetStatus() + " (" + c.GetReason() + ")"
	}
	return "-"
}

// writeManifest writes what the author of an object wrote, as YAML.
func writeManifest(w io.Writer, o *configv1.ConfigObject) error {
	data, err := yaml.JSONToYAML(o.GetManifest().GetRaw())
	if err != nil {
		return fmt.Errorf("%s: %w", name(o.GetKey()), err)
	}
	_, err = w.Write(data)
	return err
}
