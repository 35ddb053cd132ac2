package config

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/internal/cli/printer"
)

type getCommand struct {
	watch   bool
	timeout time.Duration
	mesh    connect.MeshAddress
	output  string
}

// NewGet returns "get".
func NewGet() *cobra.Command {
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
	cli.OutputFlag(cmd, &c.output, "how to print (default: a table)", printer.JSON, printer.YAML, printer.Wide)
	c.mesh.Bind(f)
	return cli.WithSettings(cmd)
}

func (c *getCommand) run(cmd *cobra.Command, args []string) error {
	timeout := c.timeout
	if c.watch {
		timeout = 0
	}
	return c.mesh.Config(cmd.Context(), timeout, func(ctx context.Context, client configv1.ConfigServiceClient) error {
		show := c.show(cmd, client)
		if len(args) == 1 {
			switch strings.TrimSuffix(strings.ToLower(args[0]), "s") {
			case "dispatcher":
				return show.Dispatchers(ctx)
			case "change":
				return show.Changes(ctx)
			}
		}
		if len(args) == 2 || len(args) == 1 && strings.Contains(args[0], "/") {
			return c.one(ctx, show, args)
		}
		return c.list(ctx, show, args)
	})
}

func (c *getCommand) show(cmd *cobra.Command, client configv1.ConfigServiceClient) *mesh.Show {
	return &mesh.Show{
		Client: client, Out: cmd.OutOrStdout(), Notes: cmd.ErrOrStderr(), Format: c.output, Watch: c.watch, Timeout: c.timeout,
	}
}

func (c *getCommand) one(ctx context.Context, show *mesh.Show, args []string) error {
	key, err := keyNamed(args)
	if err != nil {
		return err
	}
	if c.watch {
		return watchObjects(ctx, show, &configv1.WatchRequest{Kind: key.GetKind(), Name: key.GetName()})
	}
	answer, err := show.Client.Get(ctx, &configv1.GetRequest{Key: key})
	if err != nil {
		return err
	}
	return printObjects(show, answer.GetObject(), answer.GetObject())
}

func (c *getCommand) list(ctx context.Context, show *mesh.Show, args []string) error {
	kind := ""
	if len(args) == 1 {
		var err error
		if kind, err = kindNamed(args[0]); err != nil {
			return fmt.Errorf("%w, dispatchers or changes", err)
		}
	}
	if c.watch {
		return watchObjects(ctx, show, &configv1.WatchRequest{Kind: kind})
	}
	answer, err := show.Client.List(ctx, &configv1.ListRequest{Kind: kind})
	if err != nil {
		return err
	}
	if forPeople := show.Format == "" || show.Format == printer.Wide; forPeople {
		printFindings(show.Notes, answer.GetFindings())
		if len(answer.GetObjects()) == 0 {
			fmt.Fprintln(show.Notes, "there are none: `portcullis apply -f FILE` makes some")
			return nil
		}
	}
	return printObjects(show, answer, answer.GetObjects()...)
}

// printObjects prints an answer with objects. YAML has their manifests as the authors wrote them.
func printObjects(show *mesh.Show, answer proto.Message, objects ...*configv1.ConfigObject) error {
	if show.Format == printer.YAML {
		manifests := make([]any, len(objects))
		for i, o := range objects {
			manifests[i] = json.RawMessage(o.GetManifest().GetRaw())
		}
		return printer.WriteYAML(show.Out, manifests...)
	}
	return printer.Print(show.Out, show.Format, printer.Message{Message: answer}, func() error {
		rows := make([][]string, len(objects))
		for i, o := range objects {
			rows[i] = objectRow(o)
		}
		return printer.NewTable(show.Out, show.Format, objectColumns()).Write(rows...)
	})
}

func objectColumns() printer.Columns {
	return printer.Heads("OBJECT", "ACCEPTED", "IN ROTATION", "EFFECTIVE", "SERVED", "SOURCE").
		Wide("GENERATION", "VERSION", "CHANGED", "BY", "ORIGIN")
}

func objectRow(o *configv1.ConfigObject) []string {
	row := []string{Name(o.GetKey())}
	for _, kind := range []string{"Accepted", "InRotation", "Effective", "Served"} {
		row = append(row, conditionText(o, kind))
	}
	changed := ""
	if o.GetChanged() != nil {
		changed = o.GetChanged().AsTime().Format(time.RFC3339)
	}
	return append(row, o.GetSource(), fmt.Sprint(o.GetGeneration()), cmp.Or(o.GetResourceVersion(), "-"), changed, o.GetActor(), o.GetOrigin())
}

// conditionText is a condition in a cell: its status, and if that is not True, the reason.
func conditionText(o *configv1.ConfigObject, kind string) string {
	switch c := condition(o, kind); c.GetStatus() {
	case "":
		return "-"
	case "True":
		return "True"
	default:
		return c.GetStatus() + " (" + c.GetReason() + ")"
	}
}
