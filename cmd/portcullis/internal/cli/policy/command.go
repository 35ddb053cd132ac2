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
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/config/policies"
)

// NewCommand returns "policy" and the commands below it.
func NewCommand() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "policy",
		Short: "Work with policies",
		Long:  `Policy has the commands about documents of kind Policy, which docs/policies.md explains, and about the admission policies of Kubernetes.`,
		Example: `  portcullis policy init require-team
  portcullis policy expand policy.yaml
  portcullis policy promote no-latest-images --cluster trial --mode warn
  portcullis policy import --kube-context prod-1 --shadow > policies.yaml`,
	}, newInitCommand(), newExpandCommand(), newPromoteCommand(), newImportCommand())
}

type expandCommand struct {
	cluster, output string
}

func newExpandCommand() *cobra.Command {
	var c expandCommand
	cmd := &cobra.Command{
		Use:   "expand PATH...",
		Short: "Print the documents that Policies stand for",
		Long: `Expand reads documents of kind Policy, and prints the ValidatingAdmissionPolicy or MutatingAdmissionPolicy, and its binding, that each stands
for in a cluster: with the values of its parameters and its mode there. A kube-apiserver takes them as well. Kubernetes has no shadow for
mutations: there is no binding of a Policy with mutations in mode shadow. It asks no mesh, and passes over documents of other kinds. PATH is a file,
a directory, which is read with all below it, or "-" for standard input.

Exit codes: 0 when it has printed them; 1 when no policy is in force in the cluster; 2 with errors, or when the command failed.`,
		Example: `  portcullis policy expand policies.yaml
  portcullis policy expand policies --cluster prod-1 -o json
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
		if e := all[i].Expandable.Expand(c.cluster); e != nil {
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
func (c *expandCommand) absent(o *config.Object) string {
	where := "in cluster " + c.cluster
	if c.cluster == "" {
		where = "in clusters that it does not name"
	}
	return fmt.Sprintf("%s: %s is not in force %s: --cluster takes %s", o.Origin(), o.Key, where, strings.Join(o.Short.Spec.Clusters, ", "))
}

// written are the documents of an expansion as people write them. The status of the policy belongs to an API server.
func written(e *policies.Expansion) []any {
	switch {
	case e.MutatingBinding != nil:
		return []any{e.MutatingPolicy, e.MutatingBinding}
	case e.MutatingPolicy != nil:
		return []any{e.MutatingPolicy}
	}
	return []any{
		struct {
			*admissionregistrationv1.ValidatingAdmissionPolicy

			Status *struct{} `json:"status,omitempty"`
		}{ValidatingAdmissionPolicy: e.Policy},
		e.Binding,
	}
}

// read returns the policies of files, all of them valid and of different names. It passes over documents of other kinds, faults and all.
func read(in io.Reader, paths []string) (all []config.Object, err error) {
	decoder, seen := configcli.NewDecoder(), map[string]string{}
	var problems config.Problems
	files, err := pathsBelow(paths)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		data, err := content(in, file)
		if err != nil {
			return nil, err
		}
		found, wrong := decoder.Decode(file, data)
		for _, p := range wrong {
			if p.Kind == "" || p.Kind == kinds.PolicyKind {
				problems = append(problems, p)
			}
		}
		for i := range found {
			o := &found[i]
			switch first := seen[o.Name]; {
			case o.Short == nil:
			case first != "":
				return nil, fmt.Errorf("%s: %s is in %s too: remove either", o.Origin(), o.Key, first)
			default:
				seen[o.Name], all = o.Origin(), append(all, *o)
			}
		}
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no Policy in %s", strings.Join(paths, ", "))
	}
	return all, nil
}

// pathsBelow are the files of directories and below them. Other paths stay.
func pathsBelow(paths []string) (files []string, err error) {
	for _, path := range paths {
		found := []string{path}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			if found, err = offline.Files(path); err != nil {
				return nil, err
			}
		}
		files = append(files, found...)
	}
	return files, nil
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
