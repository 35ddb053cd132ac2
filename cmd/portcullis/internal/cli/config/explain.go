package config

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// explainedChanges is the number of changes of an object that explain prints.
const explainedChanges = 5

type explainCommand struct {
	timeout time.Duration
	mesh    connect.MeshAddress
	output  string
}

// NewExplain returns "explain".
func NewExplain() *cobra.Command {
	var c explainCommand
	cmd := &cobra.Command{
		Use:     "explain KIND NAME | explain hook NAME | explain staged NAME",
		Aliases: []string{"describe"},
		Short:   "Say whether an object is in force, and if not, why",
		Long: `Explain shows the state of one object to a person on call: whether it is in force everywhere, and if not, the obstacle
and its remedy; how far each dispatcher is; its findings; who changed it last, and when. Of a hook it tells besides which hosts
serve it, on which dispatchers, and whether its calls fail.

Of a staged object it tells since when its CREATE is held, by which dispatcher, for whom it waits and since when, and how much time
remains. NAME is then the name in "portcullis get staged", or the end of it from a slash on.

"portcullis describe" is the same command.

"portcullis review --explain" shows the verdicts of hooks on one review, and why others were not called.
` + configureUsage,
		Example: `  portcullis explain vwc policy --ready-file /tmp/ready.json
  portcullis explain HookRoute/policy -o yaml
  portcullis explain hook policy.example.com
  portcullis describe staged prod-1/pods/shop/web-1`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeKinds,
		RunE:              c.run,
	}
	f := cmd.Flags()
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long an answer may take")
	cli.OutputFlag(cmd, &c.output, "how to print (default: text)", printer.JSON, printer.YAML)
	c.mesh.Bind(f)
	return cli.WithSettings(cmd)
}

func (c *explainCommand) run(cmd *cobra.Command, args []string) error {
	if name, ok := hookNamed(args); ok {
		return c.hook(cmd, name)
	}
	if names, ok := mesh.StagedNames(args); ok {
		return c.staged(cmd, names)
	}
	key, err := keyNamed(args)
	if err != nil {
		return besideKinds(cmd, err)
	}
	return c.mesh.Config(cmd.Context(), c.timeout, func(ctx context.Context, client configv1.ConfigServiceClient) error {
		e, err := explain(ctx, client, key)
		if err != nil {
			return err
		}
		told, err := e.messages()
		if err != nil {
			return err
		}
		return printer.Print(cmd.OutOrStdout(), c.output, told, func() error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), e.text(time.Now()))
			return err
		})
	})
}

type explained struct {
	object      *configv1.ConfigObject
	dispatchers []*configv1.DispatcherStatus
	changes     []*configv1.Change // of the object, the latest first
}

func explain(ctx context.Context, client configv1.ConfigServiceClient, key *configv1.ConfigKey) (*explained, error) {
	object, err := client.Get(ctx, &configv1.GetRequest{Key: key})
	if err != nil {
		return nil, err
	}
	dispatchers, err := client.ListDispatchers(ctx, &configv1.ListDispatchersRequest{})
	if err != nil {
		return nil, err
	}
	changes, err := client.ListChanges(ctx, &configv1.ListChangesRequest{Key: key, Limit: explainedChanges})
	if err != nil && status.Code(err) != codes.FailedPrecondition { // without a store no changes are known
		return nil, err
	}
	return &explained{object.GetObject(), dispatchers.GetDispatchers(), changes.GetChanges()}, nil
}

func (e *explained) messages() (map[string]any, error) {
	object, err := kubernetesObject(e.object)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"object": object.Object, "verdict": e.verdict(), "dispatchers": printer.Messages(e.dispatchers), "changes": printer.Messages(e.changes),
	}, nil
}

// verdict names the first obstacle of an object in a sentence: an invalid object is not called, and an object that is not
// called is not in force.
func (e *explained) verdict() string {
	o := e.object
	if o.GetRemoving() {
		return "is being removed: no review begins with it any more, and reviews that began with it are finished first"
	}
	for _, step := range []struct{ kind, not string }{
		{"Accepted", "is not valid"}, {"InRotation", "is not called"}, {"Effective", "is not in force everywhere"},
		{"Served", "is in force everywhere, and not served"}, {"Registered", "is in force everywhere, and its entries are not known to be"},
	} {
		c := mesh.Condition(o, step.kind)
		switch c.GetStatus() {
		case "False":
			return step.not + " (" + c.GetReason() + "): " + cmp.Or(c.GetMessage(), "no more is known")
		case "Unknown":
			return "may not be in force (" + c.GetReason() + "): " + cmp.Or(c.GetMessage(), "no more is known")
		}
	}
	if c := mesh.Condition(o, "Deciding"); c.GetType() != "" {
		return "is in force everywhere; " + c.GetMessage()
	}
	return "is in force everywhere"
}

func (e *explained) text(now time.Time) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s %s\n\n", Name(e.object.GetKey()), printer.Text(e.verdict()))
	part := func(title string, rows [][]string) {
		fmt.Fprintln(&out, title)
		_ = printer.WriteRows(&out, "  ", rows) // a Builder takes everything
	}
	part("The object", e.facts(now))
	part("\nConditions", e.conditions())
	part("\nDispatchers", e.standings(now))
	part("\nFindings", e.findings())
	if len(e.changes) > 0 {
		part("\nLast changes", mesh.ChangeRows(e.changes, Name(e.object.GetKey())))
	}
	return out.String()
}

func (e *explained) facts(now time.Time) [][]string {
	o := e.object
	if o.GetActor() == "" {
		return [][]string{{"from", strings.TrimSuffix(o.GetSource()+", "+o.GetOrigin(), ", ")}}
	}
	rows := [][]string{
		{"from", fmt.Sprintf("%s, generation %d, version %s", o.GetSource(), o.GetGeneration(), o.GetResourceVersion())},
		{"changed", mesh.When(o.GetChanged(), now) + " by " + o.GetActor()},
	}
	for _, code := range slices.Sorted(maps.Keys(o.GetAcknowledged())) {
		rows = append(rows, []string{"acknowledged", code + " by " + o.GetAcknowledged()[code]})
	}
	return rows
}

func (e *explained) conditions() [][]string {
	var rows [][]string
	for _, c := range e.object.GetConditions() {
		rows = append(rows, []string{c.GetType(), c.GetStatus(), c.GetReason(), c.GetMessage()})
	}
	return rows
}

func (e *explained) standings(now time.Time) [][]string {
	if len(e.dispatchers) == 0 {
		return [][]string{{"none says that it lives: look whether any runs and reaches the store"}}
	}
	var rows [][]string
	behind := mesh.Condition(e.object, "Effective").GetDispatchers()
	for _, d := range e.dispatchers {
		at := "has it"
		switch {
		case slices.Contains(d.GetDiverging(), Name(e.object.GetKey())):
			at = "keeps an older version"
		case slices.Contains(behind, d.GetDispatcherId()):
			at = "behind"
		}
		rows = append(rows, []string{d.GetDispatcherId(), at, mesh.Standing(d) + ", said " + mesh.When(d.GetSaid(), now)})
	}
	return rows
}

func (e *explained) findings() [][]string {
	rows := make([][]string, 0, 1)
	for _, f := range e.object.GetFindings() {
		text := f.GetMessage()
		if f.GetPath() != "" {
			text = f.GetPath() + ": " + text
		}
		if who := cmp.Or(f.GetAcknowledgedBy(), e.object.GetAcknowledged()[f.GetCode()]); who != "" {
			text += " (acknowledged by " + who + ")"
		}
		rows = append(rows, []string{f.GetSeverity(), f.GetCode(), text})
	}
	if len(rows) == 0 {
		rows = append(rows, []string{"none"})
	}
	return rows
}
