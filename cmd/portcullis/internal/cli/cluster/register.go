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
	"github.com/spf13/pflag"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/directory"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
)

// NewCommand returns "cluster" with its commands.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "cluster",
		Short:   "Connect clusters with the mesh",
		Long:    "Cluster makes the objects by which the API servers of a cluster call the mesh.",
		Example: "  portcullis cluster register prod-1 --config conf.d --url https://portcullis.example.com:8443 --ca ca.crt",
	}
	return cli.Group(cmd, newJoinCommand(), newClusterRegisterCommand(), newUnregisterCommand(), newCapabilityCommand())
}

// planner has the flags of all that makes entries.
type planner struct {
	mesh    connect.MeshAddress
	timeout time.Duration
	options registration.Options
	secret  string // file of the capability
	cluster apiServer
}

type registerCommand struct {
	planner

	config []string
	output string
	diff   bool
	apply  bool
	dryRun cli.DryRun
}

func newClusterRegisterCommand() *cobra.Command {
	var c registerCommand
	var show bool
	cmd := &cobra.Command{
		Use:   "register NAME --url URL",
		Short: "Print, diff or apply the webhook configurations that make a cluster call the mesh",
		Long: `Register asks a mesh which configuration is in force, or reads the files of "portcullis serve --config", and makes the entries of
the cluster of that name: a MutatingWebhookConfiguration and a ValidatingWebhookConfiguration whose webhooks point at the mesh.
The entries bring the requests of the hooks that are in force for the cluster, and no others. Register names the dangers of the
entries on standard error, and the permissions that the mesh needs in the cluster to read the params of policies.

It prints them (--print), shows how those in the cluster would change (--diff), or writes them there (--apply). The last two find
the cluster's API server as kubectl does. "portcullis cluster unregister" is the way back.

A resource that the cluster serves in several versions is one resource for hooks with matchPolicy Equivalent, and the two
objects have to agree about which these are: the Cluster document says so, or its spec.kubeconfig is asked, or all versions
count that Kubernetes ever served.

Apply the output again whenever the rules, selectors, timeouts or policies of hooks change, and when the cluster has learned
to serve new versions. Until then hooks are called for the requests that the entries of before bring: "portcullis get clusters"
finds those that do not fit (entry-drift), and so do "portcullis apply --wait" and the metric portcullis_entry_drift.
` + connect.Usage,
		Example: `  portcullis cluster register prod-1 --server portcullis.example.com:8444 --cert op.crt --key op.key \
    --url https://portcullis.example.com:8443 --ca ca.crt --kube-context prod-1 --diff

  portcullis cluster register prod-1 --config /etc/portcullis/conf.d \
    --url https://portcullis.example.com:8443 --ca ca.crt --kube-context prod-1 --apply

  portcullis cluster register prod-1 --config conf.d --url https://10.0.0.7:8443 --ca ca.crt > entries.yaml`,
		Args:              oneCluster("register"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := c.run(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
			if c.diff && err != nil && !errors.Is(err, errDiffers) {
				return &cli.CodedError{Err: err, Code: cli.ExitError} // 1 stands for differences
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&show, "print", true, "print the objects and change nothing")
	f.BoolVar(&c.diff, "diff", false, "show how the objects of the cluster would change; exit code 0 without differences, 1 with some, 2 for errors")
	f.BoolVar(&c.apply, "apply", false, "write the objects to the cluster; an object of the same name that was not made for it stays, and is an error")
	cmd.MarkFlagsMutuallyExclusive("print", "diff", "apply")
	cli.DryRunFlag(cmd, &c.dryRun)
	f.StringArrayVar(&c.config, "config", nil, "file or directory of configuration, instead of asking a mesh; may be given several times")
	c.bind(f)
	f.Lookup("ca").Usage = "PEM file of the authorities of the mesh's certificate (default, in the output: " +
		"spec.registration.caBundle of the Cluster, or the authorities of the API server's system)"
	cli.OutputFlag(cmd, &c.output, formUsage, printer.YAML, printer.JSON)
	return cli.WithSettings(cmd)
}

func (c *planner) bind(f *pflag.FlagSet) {
	c.cluster.Bind(f)
	c.mesh.Bind(f)
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long the mesh may take to answer, and writing to the cluster")
	f.StringVar(&c.options.URL, "url", "", "where the cluster's API servers reach the mesh (serve --listen)")
	f.StringVar(&c.secret, "capability-file", "",
		"file of the capability that the API servers show, which have no client certificate (portcullis cluster capability)")
	f.StringVar(&c.options.Name, "name", registration.DefaultName, "name of the two objects")
	f.StringVar(&c.options.OwnNamespace, "own-namespace", "portcullis-system",
		`namespace in which the mesh runs in this cluster, which is exempt; "" when it runs elsewhere`)
	f.DurationVar(&c.options.Timeouts.Mutate, "mutate-timeout", registration.DefaultMutateTimeout, "longest time for the mutating hooks of a write")
	f.DurationVar(&c.options.Timeouts.Reinvoke, "reinvoke-timeout", registration.DefaultReinvokeTimeout, "longest time for the hooks of a reinvocation")
	f.DurationVar(&c.options.Timeouts.Validate, "validate-timeout", registration.DefaultValidateTimeout, "longest time for the validating hooks of a write")
}

// readAuthorities reads --ca into the options.
func (c *planner) readAuthorities() error {
	if c.mesh.CA == "" {
		return nil
	}
	bundle, err := os.ReadFile(c.mesh.CA)
	if err != nil {
		return fmt.Errorf("--ca: %w", err)
	}
	c.options.CABundle = bundle
	return nil
}

// checkAuthorities keeps entries that trust the authorities of a document from losing these for lack of a flag.
func (c *planner) checkAuthorities(cluster *kinds.Cluster) error {
	r := cluster.Spec.Registration
	switch {
	case len(c.options.CABundle) > 0 || r == nil:
	case r.CAFile != "":
		return fmt.Errorf("--ca is missing: the entries of Cluster %q trust the authorities in %s of the dispatchers (spec.registration.caFile): "+
			"name a file with the same content", cluster.Metadata.Name, r.CAFile)
	default:
		c.options.CABundle = r.CABundle
	}
	return nil
}

// plan makes the entries of a cluster from the configuration in force. Findings go to notes. served are the resources of the cluster, if
// they are known; otherwise its document names them, or the way to them. The entries have the capability of the options or of the file.
func (c *planner) plan(
	ctx context.Context, name string, objects []config.Object, served registration.Families, notes io.Writer,
) (*registration.Registration, error) {
	force, err := compileFor(ctx, name, objects, notes)
	if err != nil {
		return nil, err
	}
	if err := c.checkAuthorities(force.cluster); err != nil {
		return nil, err
	}
	if c.options.Capability.IsZero() {
		if c.options.Capability, err = capabilityFor(force.cluster, c.secret, time.Now()); err != nil {
			return nil, err
		}
	}
	if served == nil {
		if served, err = familiesOf(ctx, force.cluster); err != nil {
			fmt.Fprintf(notes, "warning: cluster %q does not state its resources, so that all versions count that Kubernetes ever had: %v\n", name, err)
		}
	}
	c.options.Equivalents = served
	r, err := registration.Plan(force.snapshot, name, c.options)
	if err != nil {
		return nil, err
	}
	for _, f := range r.Findings {
		fmt.Fprintln(notes, force.place(f))
	}
	noteParams(notes, name, force.snapshot.Hooks(), served)
	if len(r.Mutating.Webhooks)+len(r.Validating.Webhooks) == 0 {
		fmt.Fprintf(notes, "info: no hook is in force for cluster %q, so its API servers will not call the mesh\n", name)
	}
	return r, nil
}

func (c *registerCommand) run(ctx context.Context, name string, out, notes io.Writer) error {
	if err := c.readAuthorities(); err != nil {
		return err
	}
	objects, err := c.objects(ctx)
	if err != nil {
		return err
	}
	if err := c.keepMade(ctx, name, objects, notes); err != nil {
		return err
	}
	r, err := c.plan(ctx, name, objects, nil, notes)
	if err != nil {
		return err
	}
	if c.diff || c.apply {
		return c.write(ctx, name, r, out, notes)
	}
	return c.print(out, r)
}

// objects are the configuration in force: of a mesh, or of files.
func (c *registerCommand) objects(ctx context.Context) ([]config.Object, error) {
	if len(c.config) > 0 {
		return objectsIn(ctx, c.config)
	}
	if !c.mesh.Given() {
		return nil, errors.New("name the configuration in force: a mesh with a store, by --ready-file or --server, " +
			"or --config PATH, as for portcullis serve")
	}
	var objects []config.Object
	err := c.mesh.Config(ctx, c.timeout, func(ctx context.Context, client configv1.ConfigServiceClient) (err error) {
		objects, err = objectsInForce(ctx, client)
		return err
	})
	return objects, err
}

// objectsInForce returns the objects in force of a mesh.
func objectsInForce(ctx context.Context, client configv1.ConfigServiceClient) ([]config.Object, error) {
	answer, err := client.List(ctx, &configv1.ListRequest{})
	if err != nil {
		return nil, err
	}
	return objectsOf(answer.GetObjects())
}

// objectsOf decodes the objects of a mesh, except those that are being removed.
func objectsOf(list []*configv1.ConfigObject) ([]config.Object, error) {
	var objects []config.Object
	var problems config.Problems
	for _, o := range list {
		if o.GetRemoving() {
			continue
		}
		read, wrong := configcli.NewDecoder().Decode(configcli.Name(o.GetKey()), o.GetManifest().GetRaw())
		objects, problems = append(objects, read...), append(problems, wrong...)
	}
	return objects, problems.Err()
}

func objectsIn(ctx context.Context, paths []string) ([]config.Object, error) {
	directory, err := directory.New(directory.Options{Paths: paths, Decoder: configcli.NewDecoder()})
	if err != nil {
		return nil, err
	}
	listing, err := directory.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	return listing.Objects, append(listing.Problems, config.Duplicates(listing.Objects)...).Err()
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
	problems = append(problems, config.ProblemsOf(append(lint.Dangers(ctx, snapshot, "", serving),
		lint.EntryDangers(snapshot, []string{cluster}, serving)...), objects)...)
	problems = append(problems, slices.DeleteFunc(lint.Options{}.Inspect(ctx, snapshot, objects), func(p config.Problem) bool {
		return lint.IsDanger(p.Code) && p.Code != lint.CodeOwnEntry || p.Code == lint.CodeEntriesUnchecked || // of other clusters too
			p.Code == lint.CodeWildcard // of these the plan knows more
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
