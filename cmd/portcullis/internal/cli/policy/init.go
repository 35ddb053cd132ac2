package policy

import (
	"bytes"
	"embed"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
)

//go:embed files
var templates embed.FS

// filesOf are the files of a new policy, by the names of their templates.
func filesOf() map[string]string {
	return map[string]string{"policy.yaml": "policy.yaml", "cases.yaml": "cases.yaml", "README.md": "README.md", "ci.yaml": ".github/workflows/policy.yaml"}
}

func newInitCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "init NAME",
		Short: "Make the folder of a new policy",
		Long: `Init writes a Policy in mode shadow, its cases, a workflow for GitHub that runs them, and a README.md with the commands from there, into a folder that
is new or empty. NAME is the name of the policy and of the folder; a path names a folder elsewhere. The policy has a rule to change: Pods have the label
team.`,
		Example: `  portcullis policy init require-team
  portcullis policy init policies/require-team`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("name the policy, for example require-team")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			name := filepath.Base(dir)
			if len(validation.IsDNS1123Label(name)) > 0 {
				return fmt.Errorf("%q is no name of a policy (lower-case letters, digits and hyphens)%s", name, meantName(name))
			}
			files := map[string][]byte{}
			for template, file := range filesOf() {
				data, err := templates.ReadFile("files/" + template)
				if err != nil {
					return err
				}
				files[file] = bytes.ReplaceAll(data, []byte("NAME"), []byte(name))
			}
			if err := cli.WriteFolder(args[0], files); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s has the policy %s with its cases. Run them, and read README.md:\n\nportcullis test %s --coverage-min 100\n",
				args[0], name, cli.Quoted(args[0]))
			return err
		},
	}
}

// meantName suggests a name of a policy for another text.
func meantName(text string) string {
	name := strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(text), "-"), "-")
	if len(validation.IsDNS1123Label(name)) > 0 {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", name)
}
