package policy

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	cliconfig "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

type importCommand struct {
	server   connect.APIServer
	live     bool // the policies come from a cluster
	clusters []string
	shadow   bool
	output   string
}

func newImportCommand() *cobra.Command {
	var c importCommand
	cmd := &cobra.Command{
		Use:   "import PATH... | --kube-context CONTEXT",
		Short: "Print admission policies of a cluster as documents of the mesh",
		Long: `Import reads the ValidatingAdmissionPolicies, MutatingAdmissionPolicies and bindings of files or of a cluster, and prints those that the mesh
takes, sorted, without status and other fields that an API server sets. It writes the findings of "portcullis lint" to standard error: which
documents the mesh refuses or judges otherwise, and why. It asks no mesh, and changes nothing.

The mesh judges the printed documents for all of its clusters. --cluster adds HookRoutes that restrict them, and --shadow HookRoutes that put
them in shadow: the mesh judges them beside the cluster, and "portcullis shadow report" has their answers.

PATH is a file, a directory, which is read with all below it, or "-" for standard input. --kubeconfig and --kube-context name the cluster; their
user lists the four resources of admissionregistration.k8s.io.

Exit codes: 0 when "portcullis apply" would take all documents; 1 when it would refuse them for a danger that is not acknowledged; 2 when there
are documents that the mesh refuses, which are not printed, or when the command failed.`,
		Example: `  portcullis policy import --kube-context prod-1 --cluster prod-1 --shadow > policies.yaml
  kubectl get validatingadmissionpolicies,validatingadmissionpolicybindings -o yaml | portcullis policy import -
  portcullis policy import policies -o json`,
	}
	f := cmd.Flags()
	c.server.Bind(f)
	f.StringArrayVar(&c.clusters, "cluster", nil, "name of a cluster of the mesh where the policies are in force; may be given several times (default: all)")
	f.BoolVar(&c.shadow, "shadow", false, "put the policies in shadow")
	cli.OutputFlag(cmd, &c.output, "yaml, or json for one List (default: yaml)", printer.YAML, printer.JSON)
	cmd.Args = func(_ *cobra.Command, files []string) error {
		c.live = f.Changed("kubeconfig") || f.Changed("kube-context")
		if c.live == (len(files) > 0) {
			return errors.New(`name files with policies, "-", or a cluster by --kube-context`)
		}
		return nil
	}
	cmd.RunE = c.run
	return cmd
}

func (c *importCommand) run(cmd *cobra.Command, paths []string) error {
	read := importer{decoder: cliconfig.NewDecoder().WithoutServerFields()}
	if c.live {
		if err := c.readCluster(cmd.Context(), &read); err != nil {
			return err
		}
	}
	files, err := pathsBelow(paths)
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := content(cmd.InOrStdin(), file)
		if err != nil {
			return err
		}
		read.add(file, data)
	}
	if len(read.objects) == 0 && read.problems.Err() == nil {
		return &cli.CodedError{Code: cli.ExitDenied, Err: errors.New("there is no admission policy and no binding")}
	}
	if err := c.route(&read); err != nil {
		return err
	}
	if err := c.print(cmd, read.taken()); err != nil {
		return err
	}
	return cliconfig.Lint(cmd.Context(), read.objects, read.problems, cmd.ErrOrStderr(), !c.live)
}

// route adds the HookRoutes of the policies.
func (c *importCommand) route(read *importer) error {
	if !c.shadow && len(c.clusters) == 0 {
		return nil
	}
	for i := range read.objects { // the range ends before the routes
		o := &read.objects[i]
		if o.Policy == nil && o.MutatingPolicy == nil {
			continue
		}
		prefix := "validating."
		if o.MutatingPolicy != nil {
			prefix = "mutating."
		}
		document, err := json.Marshal(kinds.HookRoute{
			TypeMeta: kinds.TypeMeta{APIVersion: kinds.APIVersion, Kind: kinds.HookRouteKind},
			Metadata: kinds.Metadata{Name: prefix + o.Name},
			Spec:     kinds.HookRouteSpec{Configuration: o.Key.String(), Clusters: c.clusters, Shadow: c.shadow},
		})
		if err != nil {
			return err
		}
		read.add("--cluster", document)
	}
	return nil
}

func (c *importCommand) print(cmd *cobra.Command, taken []config.Object) error {
	documents := make([]any, len(taken))
	for i := range taken {
		documents[i] = json.RawMessage(taken[i].Manifest)
	}
	if c.output == printer.JSON {
		return printer.WriteJSON(cmd.OutOrStdout(), map[string]any{"apiVersion": "v1", "kind": "List", "items": documents})
	}
	return printer.WriteYAML(cmd.OutOrStdout(), documents...)
}

// importer collects documents.
type importer struct {
	decoder  *config.Decoder
	objects  []config.Object
	problems config.Problems
	listed   int // documents of a cluster
}

func (r *importer) add(file string, data []byte) {
	objects, problems := r.decoder.Decode(file, data)
	r.objects, r.problems = append(r.objects, objects...), append(r.problems, problems...)
}

// taken sorts the objects, and returns those that the mesh would take. Of two documents that are one object it takes neither.
func (r *importer) taken() []config.Object {
	slices.SortStableFunc(r.objects, func(a, b config.Object) int { return a.Key.Compare(b.Key) })
	twice := map[config.Key]bool{}
	for _, p := range config.Duplicates(r.objects) {
		twice[p.Key] = true
		r.problems = append(r.problems, p)
	}
	return slices.DeleteFunc(slices.Clone(r.objects), func(o config.Object) bool { return twice[o.Key] })
}
