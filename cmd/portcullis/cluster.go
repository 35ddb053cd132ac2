package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/cluster/registration"
	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/config/danger"
	"github.com/portcullis-mesh/portcullis/config/kinds"
	"github.com/portcullis-mesh/portcullis/config/lint"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

func newClusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "cluster",
		Short:   "Connect clusters with the mesh",
		Long:    "Cluster makes what has to stand in a cluster so that its API servers call the mesh.",
		Example: "  portcullis cluster register prod-1 --config conf.d --url https://portcullis.example.com:8443 --ca ca.crt",
	}
	return grouped(cmd, newClusterRegisterCommand())
}

// registerCommand is what the flags of cluster register say.
type registerCommand struct {
	config      []string
	ca          string
	options     registration.Options
	diff, apply bool
	output      *choice
}

func newClusterRegisterCommand() *cobra.Command {
	var c registerCommand
	var show bool
	cmd := &cobra.Command{
		Use:   "register NAME --config PATH --url URL",
		Short: "Print the webhook configurations that make a cluster call the mesh",
		Long: `Register reads the same configuration as "portcullis serve" and prints what has to stand in the cluster of that name: a
MutatingWebhookConfiguration and a ValidatingWebhookConfiguration whose webhooks point at the mesh. Their rules are those of
the hooks that are in force for the cluster, and nothing else. What is dangerous about them is said on standard error.

A resource that the cluster serves in several versions is one resource for hooks with matchPolicy Equivalent, and the two
objects have to agree about which these are: the Cluster document says so, or its spec.kubeconfig is asked, or all versions
count that Kubernetes ever served.

Apply the output again whenever the rules, selectors, timeouts or policies of hooks change: widen it before a new hook is
put in force, and narrow it after a hook is gone. Apply it again, too, when the cluster has learned to serve new versions.`,
		Example: `  portcullis cluster register prod-1 --config /etc/portcullis/conf.d \
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
	f.BoolVar(&c.diff, "diff", false, "not available yet: pipe the output into kubectl diff -f -")
	f.BoolVar(&c.apply, "apply", false, "not available yet: pipe the output into kubectl apply -f -")
	f.StringArrayVar(&c.config, "config", nil, "file or directory of configuration; may be given several times")
	f.StringVar(&c.options.URL, "url", "", "where the cluster's API servers reach the mesh (serve --listen)")
	f.StringVar(&c.ca, "ca", "", "PEM file of the authorities of the mesh's certificate (default: those of the API server's system)")
	f.StringVar(&c.options.Name, "name", registration.DefaultName, "name of the two objects")
	f.StringVar(&c.options.OwnNamespace, "own-namespace", "portcullis-system",
		`namespace in which the mesh runs in this cluster, which is exempt; "" when it runs elsewhere`)
	f.DurationVar(&c.options.Budget.Mutate, "mutate-timeout", registration.DefaultMutateBudget, "longest time for the mutating hooks of a write")
	f.DurationVar(&c.options.Budget.Reinvoke, "reinvoke-timeout", registration.DefaultReinvokeBudget, "longest time for the hooks of a reinvocation")
	f.DurationVar(&c.options.Budget.Validate, "validate-timeout", registration.DefaultValidateBudget, "longest time for the validating hooks of a write")
	c.output = outputFlag(cmd, "yaml or json (default: yaml)", formatYAML, formatJSON)
	return withSettings(cmd)
}

func (c *registerCommand) run(ctx context.Context, name string, out, notes io.Writer) error {
	switch {
	case c.diff:
		return errors.New("--diff is not available yet: print the objects, and pipe them into kubectl diff -f -")
	case c.apply:
		return errors.New("--apply is not available yet: print the objects, and pipe them into kubectl apply -f -")
	case len(c.config) == 0:
		return errors.New("say which configuration is in force: --config PATH, as for portcullis serve")
	}
	if c.ca != "" {
		bundle, err := os.ReadFile(c.ca)
		if err != nil {
			return fmt.Errorf("--ca: %w", err)
		}
		c.options.CABundle = bundle
	}
	force, err := compileFor(ctx, name, c.config, notes)
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

// print writes the objects, for kubectl.
func (c *registerCommand) print(out io.Writer, r *registration.Registration) error {
	if c.output.value == formatJSON {
		return writeJSON(out, map[string]any{"apiVersion": "v1", "kind": "List", "items": []any{r.Mutating, r.Validating}})
	}
	for _, object := range []any{r.Mutating, r.Validating} {
		data, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "---\n%s", data); err != nil {
			return err
		}
	}
	return nil
}

// inForce is the configuration that entries are made from.
type inForce struct {
	snapshot *match.Snapshot
	cluster  *kinds.Cluster
	objects  []config.Object
}

// place is the finding with the document that it is about, under the kind that this says it is.
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
func compileFor(ctx context.Context, cluster string, paths []string, notes io.Writer) (*inForce, error) {
	directory, err := config.NewDirectory(config.DirectoryOptions{Paths: paths})
	if err != nil {
		return nil, err
	}
	listing, err := directory.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	if err := append(listing.Problems, duplicates(listing.Objects)...).Err(); err != nil {
		return nil, err
	}
	document, err := known(cluster, listing.Objects)
	if err != nil {
		return nil, err
	}
	snapshot, problems := config.Compile(listing.Revision, listing.Objects)
	serving := func(h *match.Hook) bool { return h.Serves(cluster) }
	problems = append(problems, config.ProblemsOf(danger.Findings(ctx, snapshot, danger.Options{Only: serving}), listing.Objects)...)
	problems = append(problems, slices.DeleteFunc(lint.Options{}.Inspect(ctx, snapshot, listing.Objects), func(p config.Problem) bool {
		return danger.Is(p.Code) && p.Code != lint.CodeOwnEntry || p.Code == lint.CodeWildcard // of these the plan knows more
	})...)
	for _, p := range problems {
		if p.Severity == match.SeverityWarning {
			fmt.Fprintf(notes, "warning: %s\n", p)
		}
	}
	return &inForce{snapshot, document, listing.Objects}, problems.Err()
}

// duplicates reports objects that stand in several documents: a dispatcher would use none of them.
func duplicates(objects []config.Object) config.Problems {
	var problems config.Problems
	seen := map[config.Key]*config.Object{}
	for i := range objects {
		o := &objects[i]
		if first, ok := seen[o.Key]; ok {
			problems = append(problems, config.Problem{
				Severity: match.SeverityError, Code: config.CodeDuplicate, File: o.File, Line: o.Line, Kind: o.WrittenKind(), Key: o.Key,
				Message: "it is in " + first.Origin() + " too: remove one of the two",
			})
			continue
		}
		seen[o.Key] = o
	}
	return problems
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
