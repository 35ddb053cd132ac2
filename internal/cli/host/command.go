// Package host has the command that begins a host.
package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/examples"
	"github.com/portcullis-mesh/portcullis/internal/cli"
)

// NewCommand returns "host" with its command.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "host",
		Short: "Begin a host",
		Long: `Host helps the authors of hosts, the programs that serve hooks. "portcullis dev" is a mesh to try them with; "portcullis get hosts"
shows those of a mesh.`,
		Example: "  portcullis host init --lang python imagepolicy",
	}
	return cli.Group(cmd, newInitCommand())
}

func newInitCommand() *cobra.Command {
	var lang string
	cmd := &cobra.Command{
		Use:   "init --lang LANGUAGE DIR",
		Short: "Make the folder of a new host",
		Long: `Init writes a host with its tests, and the configuration that a mesh needs for it, into a folder that is new or empty. It prints the commands
from there to a verdict: what fetches the SDK, "portcullis dev --no-samples" as a mesh, the start of the host, and a review.

The host is the example of its language: it denies Pods with images that are not named by digest.`,
		Example: `  portcullis host init --lang go imagepolicy
  portcullis host init --lang typescript imagepolicy`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l := languages()[lang]
			files, err := examples.Files(l.example)
			if err != nil {
				return err
			}
			if err := write(args[0], files); err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), l.text(args[0]))
			return err
		},
	}
	cli.ChoiceFlag(cmd, &lang, "lang", "language of the host", slices.Sorted(maps.Keys(languages()))...)
	cobra.CheckErr(cmd.MarkFlagRequired("lang"))
	return cmd
}

// write copies files to a directory, which must be empty if it is there.
func write(dir string, files fs.FS) error {
	switch there, err := os.ReadDir(dir); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case len(there) > 0:
		return fmt.Errorf("%s is not empty (it has %s): name a folder that is new or empty", dir, there[0].Name())
	}
	return fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(name))
		if entry.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		return os.WriteFile(to, ownProject(data), 0o644) //nolint:gosec // the sources of a project are for all to read
	})
}

// ownProject leaves out the lines of a manifest that tie an example to the SDK in the same repository.
func ownProject(data []byte) []byte {
	var kept bytes.Buffer
	for line := range bytes.Lines(data) {
		if !bytes.Contains(line, []byte("../../sdk/")) {
			kept.Write(line)
		}
	}
	return kept.Bytes()
}
