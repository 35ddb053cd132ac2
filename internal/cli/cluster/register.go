// Package cluster has the commands that connect a Kubernetes cluster with the mesh.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cluster/registration"
	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/config/directory"
	"github.com/portcullis-mesh/portcullis/config/kinds"
	"github.com/portcullis-mesh/portcullis/config/lint"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cli"
	configcli "github.com/portcullis-mesh/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/internal/cli/printer"
)

// NewCommand returns "cluster" with its commands.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "cluster",
		Short:   "Connect clusters with the mesh",
		Long:    "Cluster makes what has to stand in a cluster so that its API servers call the mesh.",
		Example: "  portcullis cluster register prod-1 --config conf.d --url https://portcullis.example.com:8443 --ca ca.crt",
	}
	return cli.Group(cmd, newClusterRegisterCommand())
}

type registerCommand struct {
	config  []string
	mesh    connect.MeshAddress
	timeout time.Duration
	options registration.Options
	output  string
}

func newClusterRegisterCommand() *cobra.Command {
	var c registerCommand
	var show bool
	cmd := &cobra.Command{
		Use:   "register NAME --url URL",
		Short: "Print the webhook configurations that make a cluster call the mesh",
		Long: `Register asks a mesh which configuration is in force, or reads the files of "portcullis serve --config", and prints what has to
stand in the cluster of that name: a MutatingWebhookConfiguration and a ValidatingWebhookConfiguration whose webhooks point at
the mesh. Their rules are those of the hooks that are in force for the cluster, and nothing else. What is dangerous about them
is said on standard error.

A resource that the cluster serves in several versions is one resource for hooks with matchPolicy Equivalent, and the two
objects have to agree about which these are: the Cluster document says so, or its spec.kubeconfig is asked, or all versions
count that Kubernetes ever served.

Apply the output again whenever the rules, selectors, timeouts or policies of hooks change, and when the cluster has learned
to serve new versions. Until then hooks are called for the requests that the entries of before bring: "portcullis get clusters"
finds those that do not fit (entry-drift), and so do "portcullis apply --wait" and the metric portcullis_entry_drift.
` + connect.Usage,
		Example: `  portcullis cluster register prod-1 --server portcullis.example.com:8444 --cert op.crt --key op.key \
    --url https://portcullis.example.com:8443 --ca ca.crt | kubectl --context prod-1 apply -f -

  portcullis cluster register prod-1 --config /etc/portcullis/conf.d \
    --url https://portcullis.example.com:8443 --ca ca.crt | kubectl --context prod-1 apply -f -

  portcullis cluster register prod-1 --config conf.d --url https://10.0.0.7:8443 --ca ca.crt | kubectl diff -f -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name one cluster: portcullis cluster register NAME, as its Cluster document has it")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&show, "print", true, "print the objects and change nothing")
	f.StringArrayVar(&c.config, "config", nil, "file or directory of configuration, instead of asking a mesh; may be given several times")
	c.mesh.Bind(f)
	f.Lookup("ca").Usage = "PEM file of the authorities of the mesh's certificate (default, in what is printed: those of the API server's system)"
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long the mesh may take to answer")
	f.StringVar(&c.options.URL, "url", "", "where the cluster's API servers reach the mesh (serve --listen)")
	f.StringVar(&c.options.Name, "name", registration.DefaultName, "name of the two objects")
	f.StringVar(&c.options.OwnNamespace, "own-namespace", "portcullis-system",
		`namespace in which the mesh runs in this cluster, which is exempt; "" when it runs elsewhere`)
	f.DurationVar(&c.options.Budget.Mutate, "mutate-timeout", registration.DefaultMutateBudget, "longest time for the mutating hooks of a write")
	f.DurationVar(&c.options.Budget.Reinvoke, "reinvoke-timeout", registration.DefaultReinvokeBudget, "longest time for the hooks of a reinvocation")
	f.DurationVar(&c.options.Budget.Validate, "validate-timeout", registration.DefaultValidateBudget, "longest time for the validating hooks of a write")
	cli.OutputFlag(cmd, &c.output, "yaml or json (default: yaml)", printer.YAML, printer.JSON)
	return cli.WithSettings(cmd)
}

func (c *registerCommand) run(ctx context.Context, name string, out, notes io.Writer) error {
	if ca := c.mesh.CA; ca != "" {
		bundle, err := os.ReadFile(ca)
		if err != nil {
			return fmt.Errorf("--ca: %w", err)
		}
		c.options.CABundle = bundle
	}
	objects, err := c.objects(ctx)
	if err != nil {
		return err
	}
	force, err := compileFor(ctx, name, objects, notes)
	if err != nil {
		return err
	}
	families, err := familiesOf(ctx, force.cluster)
	if err != nil {
		fmt.Fprintf(notes, "warning: cluster %q does not say what it serves, so that all versions count that Kubernetes ever had: %v\n", name, err)
	}
	c.options.Equivalents = families
	r, err := registration.Plan(force.snapshot, name, c.options)
	if err != nil {
		return err
	}
	for _, f := range r.Findings {
		fmt.Fprintln(notes, force.place(f))
	}
	if len(r.Mutating.Webhooks)+len(r.Validating.Webhooks) == 0 {
		fmt.Fprintf(notes, "info: no hook is in force for cluster %q, so its API servers will not call the mesh\n", name)
	}
	return c.print(out, r)
}

// objects are the configuration in force: of a mesh, or of files.
func (c *registerCommand) objects(ctx context.Context) ([]config.Object, error) {
	if len(c.config) > 0 {
		return objectsIn(ctx, c.config)
	}
	if !c.mesh.Given() {
		return nil, errors.New("say which configuration is in force: that of a mesh with a store, by --ready-file or --server, " +
			"or --config PATH, as for portcullis serve")
	}
	var objects []config.Object
	err := c.mesh.Config(ctx, c.timeout, func(ctx context.Context, client configv1.ConfigServiceClient) error {
		answer, err := client.List(ctx, &configv1.ListRequest{})
		if err != nil {
			return err
		}
		objects, err = objectsOf(answer.GetObjects())
		return err
	})
	return objects, err
}

// objectsOf decodes the objects of a mesh, except those that are being removed.
func objectsOf(list []*configv1.ConfigObject) ([]config.Object, error) {
	var objects []config.Object
	var problems config.Problems
	for _, o := range list {
		if o.GetRemoving() {
			continue
		}
		read, wrong := config.Decode(configcli.Name(o.GetKey()), o.GetManifest().GetRaw())
		objects, problems = append(objects, read...), append(problems, wrong...)
	}
	return objects, problems.Err()
}

func objectsIn(ctx context.Context, paths []string) ([]config.Object, error) {
	directory, err := directory.New(directory.Options{Paths: paths})
	if err != nil {
		return nil, err
	}
	listing, err := directory.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	return listing.Objects, append(listing.Problems, configcli.Duplicates(listing.Objects)...).Err()
}

func (c *registerCommand) print(out io.Writer, r *registration.Registration) error {
	objects := []any{r.Mutating, r.Validating}
	if c.output == printer.JSON {
		return printer.WriteJSON(out, map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	}
	fmt.Fprintln(out, "---")
	return printer.WriteYAML(out, objects...)
}

// inForce is the configuration that entries are made from.
type inForce struct {
	snapshot *match.Snapshot
	cluster  *kinds.Cluster
	objects  []config.Object
}

// place adds the document to a finding about it, with the kind that the document has.
func (c *inForce) place(f match.Finding) match.Finding {
	name, field, _ := strings.Cut(f.Path, " ")
	for i := range c.objects {
		if o := &c.objects[i]; o.Key.String() == name {
			f.Source, f.Path = o.Origin(), fmt.Sprintf("%s/%s %s", o.WrittenKind(), o.Name, field)
		}
	}
	return f
}

// compileFor compiles the configuration as a dispatcher would, and finds the document of the cluster in it. Warnings go to
// notes.
func compileFor(ctx context.Context, cluster string, objects []config.Object, notes io.Writer) (*inForce, error) {
	document, err := known(cluster, objects)
	if err != nil {
		return nil, err
	}
	snapshot, problems := config.Compile("", objects)
	serving := func(h *match.Hook) bool { return h.Serves(cluster) }
	problems = append(problems, config.ProblemsOf(lint.Dangers(ctx, snapshot, "", serving), objects)...)
	problems = append(problems, slices.DeleteFunc(lint.Options{}.Inspect(ctx, snapshot, objects), func(p config.Problem) bool {
		return lint.IsDanger(p.Code) && p.Code != lint.CodeOwnEntry || p.Code == lint.CodeWildcard // of these the plan knows more
	})...)
	for _, p := range problems {
		if p.Severity == match.SeverityWarning {
			fmt.Fprintf(notes, "warning: %s\n", p)
		}
	}
	return &inForce{snapshot, document, objects}, problems.Err()
}

// known is the document of the cluster. Without one the mesh would refuse its reviews, and with them its writes.
func known(cluster string, objects []config.Object) (*kinds.Cluster, error) {
	var names []string
	for _, o := range objects {
		if o.Cluster == nil {
			continue
		}
		if o.Name == cluster {
			return o.Cluster, nil
		}
		names = append(names, o.Name)
	}
	slices.Sort(names)
	return nil, fmt.Errorf("the configuration has no Cluster %q, so the mesh would refuse its reviews; it has %s",
		cluster, cmp.Or(strings.Join(names, ", "), "none"))
}
