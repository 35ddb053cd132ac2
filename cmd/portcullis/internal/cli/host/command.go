// Package host has the command that begins a host.
package host

import (
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
)

// NewCommand returns "host" with its command.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "host",
		Short: "Begin a host",
		Long: `Host helps the authors of hosts, the programs that serve hooks. "portcullis dev" is a mesh to try them with; "portcullis get hosts"
shows the hosts of a mesh.`,
		Example: "  portcullis host init --lang python imagepolicy",
	}
	return cli.Group(cmd, newInitCommand())
}

func newInitCommand() *cobra.Command {
	var lang, name string
	var mutating bool
	cmd := &cobra.Command{
		Use:   "init --lang LANGUAGE DIR",
		Short: "Make the folder of a new host",
		Long: `Init writes a host with its tests, and the configuration that a mesh needs for it, into a folder that is new or empty. It prints the commands
from there to a verdict: fetching the SDK, "portcullis dev --no-samples" as a mesh, the start of the host, and a review. It also writes the files that
bring the host into a cluster: a Dockerfile, values for the chart portcullis-host, and a CI file for GitHub.

The module, the program, the hook, the configuration and the image have the name of the folder. The hook is the example's hook of that language:
it denies Pods with images that are not named by digest. With --mutating a second hook labels Pods with a team.`,
		Example: `  portcullis host init --lang go require-digests
  portcullis host init --lang typescript --mutating imagepolicy`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := nameOf(args[0], name)
			if err != nil {
				return err
			}
			p := &project{language: languages()[lang], name: name, mutating: mutating}
			files, err := p.files()
			if err != nil {
				return err
			}
			if err := cli.WriteFolder(args[0], files); err != nil {
				return err
			}
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), p.text(dir))
			return err
		},
	}
	cli.ChoiceFlag(cmd, &lang, "lang", "language of the host", slices.Sorted(maps.Keys(languages()))...)
	cmd.Flags().StringVar(&name, "name", "", "name of the host, its hook NAME.example.com, and its image (default: the name of the folder)")
	cmd.Flags().BoolVar(&mutating, "mutating", false, "write a second hook too, which changes objects")
	cobra.CheckErr(cmd.MarkFlagRequired("lang"))
	return cmd
}
