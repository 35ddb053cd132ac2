package config

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/config/service"
)

type getCommand struct {
	watch    bool
	selector string
	timeout  time.Duration
	mesh     connect.MeshAddress
	output   string
}

// NewGet returns "get".
func NewGet() *cobra.Command {
	var c getCommand
	cmd := &cobra.Command{
		Use:   "get [KIND[,KIND] [NAME...] | KIND/NAME...] | get dispatchers | get hosts | get hooks | get changes | get staged [NAME...]",
		Short: "Show objects of the configuration, the dispatchers, hosts and hooks, the history of changes, or objects that are held for initializers",
		Long: `Get shows the objects of all sources, and whether they are valid, called, in force everywhere, and served: whether every hook that
is called over streams has a host on every dispatcher. MODE is the mode of a Policy (shadow, warn or enforce), with the clusters where it
differs, the validationActions of a ValidatingAdmissionPolicy or its binding, and of other objects whether their hooks decide. Kinds have
the short names vwc, mwc, initconf and hr; without one, and with "all", it shows every kind.

With -o yaml it prints the documents as written, for "portcullis apply". With -o json it prints objects of Kubernetes
with the conditions and findings as their status; several are a List. -o jsonpath=TEMPLATE, go-template=TEMPLATE and
custom-columns=HEADER:PATH,... work as in kubectl, and -o name prints names for "portcullis get" and "delete". -l SELECTOR shows
the objects with these labels alone.

With -w it shows each object again when something about it changes, until it is interrupted, which is no error. With -o json each
change is a line.

"get dispatchers" shows which configuration each live dispatcher judges by, and its state: Current, Behind the store,
Diverging when it keeps an older version of something, Stopped when its configuration is too old to judge by. "get hosts" shows the hosts that are
connected: their hooks, their slots in use, and how long their latest calls took. "get hooks" shows each hook in force, and the hosts,
the webhook or the controllers that answer its calls. "get changes" shows
the changes with their authors, the latest first. With -w they are looked at each second: a dispatcher is shown again when something has changed
about it but its age, and a change when it has been made, the latest last; with -o json each line holds all dispatchers, or one change.

"get staged" shows the objects of CREATE requests that are held until initializers have acted: whom each one waits for and since when,
how much time remains, and which dispatcher holds it. A NAME may be the end of a shown name, from a slash on.
` + configureUsage,
		Example: `  portcullis get --ready-file /tmp/ready.json
  portcullis get vwc policy -o yaml
  portcullis get vwc,mwc -o jsonpath='{.items[*].metadata.name}'
  portcullis get all -l team=payments -o custom-columns=NAME:.metadata.name,GENERATION:.metadata.generation
  portcullis get hookroutes -w
  portcullis get dispatchers -o json
  portcullis get hosts
  portcullis get hooks -o wide
  portcullis get changes -w
  portcullis get staged -w`,
		ValidArgsFunction: completeKinds,
		RunE:              c.run,
	}
	f := cmd.Flags()
	f.BoolVarP(&c.watch, "watch", "w", false, "go on, and show changes")
	f.StringVarP(&c.selector, "selector", "l", "", "labels of the objects to show, as kubectl selects: team=payments, 'tier in (a,b)', !canary")
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long an answer may take, but not the stream of --watch")
	cli.OutputFlag(cmd, &c.output, "how to print (default: a table)",
		append([]string{printer.JSON, printer.YAML, printer.Wide, printer.Name}, printer.Templates()...)...)
	c.mesh.Bind(f)
	return cli.WithSettings(cmd)
}

func (c *getCommand) run(cmd *cobra.Command, args []string) error {
	timeout := c.timeout
	if c.watch {
		timeout = 0
	}
	if names, ok := mesh.StagedNames(args); ok {
		return c.staged(cmd, names, timeout)
	}
	others := showOthers(args)
	if others != nil && c.selector != "" {
		return fmt.Errorf("-l: %s have no labels, only objects of the configuration have", args[0])
	}
	var which selection
	if others == nil {
		var err error
		if which, err = selected(args); err == nil {
			which, err = which.labelled(c.selector)
		}
		if err != nil {
			return besideKinds(cmd, err)
		}
	}
	return c.mesh.Use(cmd.Context(), timeout, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		show := c.show(cmd, conn)
		if others != nil {
			return others(show, ctx)
		}
		if c.watch {
			return watchObjects(ctx, show, which)
		}
		return c.list(ctx, show, which)
	})
}

// showOthers shows dispatchers, hosts, hooks and the like, if the arguments name them; it returns nil if they name objects of the configuration.
func showOthers(args []string) func(*mesh.Show, context.Context) error {
	if len(args) != 1 {
		return nil
	}
	switch strings.TrimSuffix(strings.ToLower(args[0]), "s") {
	case "dispatcher":
		return (*mesh.Show).Dispatchers
	case "change":
		return (*mesh.Show).Changes
	case "host":
		return (*mesh.Show).Hosts
	case "hook":
		return (*mesh.Show).Hooks
	}
	return nil
}

func (c *getCommand) show(cmd *cobra.Command, conn grpc.ClientConnInterface) *mesh.Show {
	return &mesh.Show{
		Mesh: mesh.New(conn, &c.mesh, cmd.ErrOrStderr()),
		Out:  cmd.OutOrStdout(), Format: c.output, Watch: c.watch, Timeout: c.timeout,
	}
}

func (c *getCommand) list(ctx context.Context, show *mesh.Show, which selection) error {
	objects, findings, err := which.get(ctx, show.Config)
	if err != nil && len(objects) == 0 {
		return err
	}
	if forPeople := show.Format == "" || show.Format == printer.Wide; forPeople {
		printFindings(show.Notes, append(findings, entryFindings(objects)...))
		if len(objects) == 0 {
			none := "there are none: `portcullis apply -f FILE` makes some"
			if which.labels != nil {
				none = "there are none with these labels"
			}
			fmt.Fprintln(show.Notes, none)
			return nil
		}
	}
	if err := printObjects(show, which, objects, findings); err != nil {
		return err
	}
	return err
}

// entryFindings returns the findings about the entries of clusters.
func entryFindings(objects []*configv1.ConfigObject) []*configv1.Finding {
	return findingsOf(objects, service.CodeEntryDrift, service.CodeEntriesUnseen, service.CodeEntriesBehind, service.CodeEntriesNotKept)
}

// printObjects prints objects in the form of -o. YAML has their manifests as the authors wrote them.
func printObjects(show *mesh.Show, which selection, objects []*configv1.ConfigObject, findings []*configv1.Finding) error {
	switch show.Format {
	case "", printer.Wide:
		rows := make([][]string, len(objects))
		for i, o := range objects {
			rows[i] = objectRow(o)
		}
		return printer.NewTable(show.Out, show.Format, objectColumns()).Write(rows...)
	case printer.YAML:
		manifests := make([]any, len(objects))
		for i, o := range objects {
			manifests[i] = json.RawMessage(o.GetManifest().GetRaw())
		}
		return printer.WriteYAML(show.Out, manifests...)
	}
	list, err := kubernetesList(objects)
	if err != nil {
		return err
	}
	if which.one {
		return printObject(show, &list.Items[0])
	}
	if len(findings) > 0 { // about the configuration as a whole
		list.Object["findings"] = printer.Messages(findings)
	}
	return printObject(show, list)
}

// printObject prints an object or a List by the library that kubectl uses. JSON has no character escaped that need not be.
func printObject(show *mesh.Show, object runtime.Unstructured) error {
	switch show.Format {
	case printer.Name:
		return printer.WriteNames(show.Out, object)
	case printer.JSON:
		return printer.WriteJSON(show.Out, object.UnstructuredContent())
	}
	return printer.Print(show.Out, show.Format, object, nil)
}

func objectColumns() printer.Columns {
	return printer.Heads("OBJECT", "ACCEPTED", "IN ROTATION", "EFFECTIVE", "SERVED", "MODE", "SOURCE").
		Wide("GENERATION", "VERSION", "CHANGED", "BY", "ORIGIN")
}

func objectRow(o *configv1.ConfigObject) []string {
	row := []string{Name(o.GetKey())}
	for _, kind := range []string{"Accepted", "InRotation", "Effective", "Served"} {
		row = append(row, conditionText(o, kind))
	}
	row = append(row, modeText(o))
	changed := ""
	if o.GetChanged() != nil {
		changed = o.GetChanged().AsTime().Format(time.RFC3339)
	}
	return append(row, o.GetSource(), fmt.Sprint(o.GetGeneration()), cmp.Or(o.GetResourceVersion(), "-"), changed, o.GetActor(), o.GetOrigin())
}

// modeText is the mode of a Policy, the validationActions of a ValidatingAdmissionPolicy or its binding, or else whether the hooks of an object decide;
// "-" for an object without hooks, or that is not valid.
func modeText(o *configv1.ConfigObject) string {
	switch kind, c := o.GetKey().GetKind(), mesh.Condition(o, "Deciding"); {
	case kind == kinds.PolicyKind && mesh.Condition(o, "Accepted").GetStatus() == "True":
		return policyModeOf(o).String()
	case c.GetType() != "":
		return c.GetReason()
	case mesh.Condition(o, "Accepted").GetStatus() == "True" && hasHooks(kind):
		return "Deciding"
	}
	return "-"
}

// hasHooks reports whether objects of a kind have hooks that decide unless they are in shadow.
func hasHooks(kind string) bool {
	return kind == kinds.HookRouteKind || strings.HasSuffix(kind, "WebhookConfiguration") || strings.HasPrefix(kind, policy.MutatingKind)
}

// conditionText is a condition in a cell: its status, and if that is not True, the reason.
func conditionText(o *configv1.ConfigObject, kind string) string {
	switch c := mesh.Condition(o, kind); c.GetStatus() {
	case "":
		return "-"
	case "True":
		return "True"
	default:
		return c.GetStatus() + " (" + c.GetReason() + ")"
	}
}
