// Package policy has the commands about policies.
package policy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/policies"
)

// NewCommand returns "policy" and the commands below it.
func NewCommand() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "policy",
		Short: "Work with policies",
		Long:  `Policy has the commands about documents of kind Policy, which docs/policies.md explains, and about the admission policies of Kubernetes.`,
		Example: `  portcullis policy expand policy.yaml
  portcullis policy import --kube-context prod-1 --shadow > policies.yaml`,
	}, newExpandCommand(), newImportCommand())
}

type expandCommand struct {
	cluster, output string
}

func newExpandCommand() *cobra.Command {
	var c expandCommand
	cmd := &cobra.Command{
		Use:   "expand FILE...",
		Short: "Print the documents that Policies stand for",
		Long: `Expand reads documents of kind Policy, and prints the ValidatingAdmissionPolicy and the ValidatingAdmissionPolicyBinding that each stands for
in a cluster: with the values of its parameters and its mode there. A kube-apiserver takes them as well. It asks no mesh, and passes over
documents of other kinds. FILE is "-" for standard input.

Exit codes: 0 when it has printed them; 1 when no policy is in force in the cluster; 2 with errors, or when the command failed.`,
		Example: `  portcullis policy expand policies.yaml
  portcullis policy expand policies/*.yaml --cluster prod-1 -o json
  portcullis policy expand policies.yaml --cluster prod-1 | kubectl apply --context prod-1 --dry-run=server -f -`,
		Args: func(_ *cobra.Command, files []string) error {
			if len(files) == 0 {
				return errors.New(`name the files with the policies, for example policies.yaml, or "-"`)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&c.cluster, "cluster", "", "name of the cluster (default: a cluster that the policies do not name)")
	cli.OutputFlag(cmd, &c.output, "yaml, or json for one List (default: yaml)", printer.YAML, printer.JSON)
	cmd.RunE = c.run
	return cmd
}

func (c *expandCommand) run(cmd *cobra.Command, files []string) error {
	all, err := read(cmd.InOrStdin(), files)
	if err != nil {
		return err
	}
	var documents []any
	for i := range all {
		if e := all[i].Expand(c.cluster); e != nil {
			documents = append(documents, written(e)...)
			continue
		}
		if _, err := fmt.Fprintln(cmd.ErrOrStderr(), c.absent(&all[i])); err != nil {
			return err
		}
	}
	if len(documents) == 0 {
		return &cli.CodedError{Code: cli.ExitDenied}
	}
	if c.output == printer.JSON {
		return printer.WriteJSON(cmd.OutOrStdout(), map[string]any{"apiVersion": "v1", "kind": "List", "items": documents})
	}
	return printer.WriteYAML(cmd.OutOrStdout(), documents...)
}

// absent is the note about a policy that is not in force in the cluster.
func (c *expandCommand) absent(p *config.PolicyDocument) string {
	d := p.Document()
	where := "in cluster " + c.cluster
	if c.cluster == "" {
		where = "in clusters that it does not name"
	}
	return fmt.Sprintf("%s:%d: Policy %s is not in force %s: --cluster takes %s", p.File, p.Line, d.Metadata.Name, where, strings.Join(d.Spec.Clusters, ", "))
}

// written are the documents of an expansion as people write them. The status of the policy belongs to an API server.
func written(e *policies.Expansion) []any {
	return []any{
		struct {
			*admissionregistrationv1.ValidatingAdmissionPolicy

			Status *struct{} `json:"status,omitempty"`
		}{ValidatingAdmissionPolicy: e.Policy},
		e.Binding,
	}
}

// read returns the policies of files, all of them valid and of different names.
func read(in io.Reader, files []string) ([]config.PolicyDocument, error) {
	compiler, err := policies.NewCompiler()
	if err != nil {
		return nil, err
	}
	var all []config.PolicyDocument
	var problems config.Problems
	for _, file := range files {
		data, err := content(in, file)
		if err != nil {
			return nil, err
		}
		found, wrong := config.DecodePolicies(compiler, file, data)
		all, problems = append(all, found...), append(problems, wrong...)
	}
	if err := errors.Join(problems.Err(), repeated(all)); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no Policy in %s", strings.Join(files, ", "))
	}
	return all, nil
}

// repeated is an error if two policies have one name.
func repeated(all []config.PolicyDocument) error {
	seen := map[string]*config.PolicyDocument{}
	for i := range all {
		p, name := &all[i], all[i].Document().Metadata.Name
		if first := seen[name]; first != nil {
			return fmt.Errorf("%s:%d: Policy %q is in %s:%d too: remove either", p.File, p.Line, name, first.File, first.Line)
		}
		seen[name] = p
	}
	return nil
}

// content is a file, up to one byte more than is read.
func content(in io.Reader, file string) ([]byte, error) {
	if file != "-" {
		f, err := os.Open(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, cli.NoFile(file)
		}
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, config.MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return data, nil
}
