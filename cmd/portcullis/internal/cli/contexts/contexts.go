// Package contexts has the commands about the settings file: the meshes that it names, and the one in use.
package contexts

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
)

// NewCommand returns "config" with its commands.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show and choose the mesh that commands talk to",
		Long: `Config shows the contexts of the settings file, and chooses the context of commands. The file is the one of --settings or
$PORTCULLIS_SETTINGS, else $XDG_CONFIG_HOME/portcullis/config, else ~/.config/portcullis/config:

  current-context: prod
  contexts:
    prod:
      server: mesh.example.com:8444
      ca: prod/ca.crt        # relative to the directory of this file
      cert: prod/me.crt
      key: prod/me.key
      cluster: prod-1        # for portcullis review
    dev:
      ready-file: /tmp/ready.json
  timeout: 1m                # any other flag, by its name

The command line wins over variables, and variables win over the file. --context, or $PORTCULLIS_CONTEXT, names a mesh and the
certificate of its caller: then the variables for these are not used.`,
		Example: "  portcullis config get-contexts\n  portcullis config use-context prod\n  portcullis get vwc --context dev",
	}
	return cli.Group(cmd, newGetContexts(), newUseContext(), newCurrentContext())
}

// bound adds --settings, and a run that has the file.
func bound(cmd *cobra.Command, run func(cmd *cobra.Command, s *cli.Settings, args []string) error) *cobra.Command {
	cli.SettingsFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file := cmp.Or(cmd.Flag("settings").Value.String(), os.Getenv("PORTCULLIS_SETTINGS"), cli.DefaultSettingsFile())
		if file == "" {
			return errors.New("there is no home directory: name a file with --settings")
		}
		s, err := cli.ReadSettings(file)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: `portcullis config --help` shows its fields", err)
		}
		if err != nil {
			return err
		}
		return run(cmd, s, args)
	}
	return cmd
}

// context is a context as tools read it.
type context struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	// Flags are the values of its flags, paths absolute.
	Flags map[string]string `json:"flags"`
}

func contextsOf(s *cli.Settings) ([]context, error) {
	dir, err := filepath.Abs(filepath.Dir(s.File))
	if err != nil {
		return nil, err
	}
	all := make([]context, len(s.Contexts))
	for i, c := range s.Contexts {
		all[i] = context{Name: c.Name, Current: c.Name == s.Current, Flags: c.Values(dir)}
	}
	return all, nil
}

func newGetContexts() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "get-contexts",
		Short:   "List the contexts of the settings file",
		Long:    "Get-contexts lists the contexts of the settings file. The current one has a star.",
		Example: "  portcullis config get-contexts -o name",
		Args:    cobra.NoArgs,
	}
	var output string
	cli.OutputFlag(cmd, &output, "how to print (default: a table)", printer.Name, printer.JSON, printer.YAML)
	return bound(cmd, func(cmd *cobra.Command, s *cli.Settings, _ []string) error {
		all, err := contextsOf(s)
		if err != nil {
			return err
		}
		return printer.Print(cmd.OutOrStdout(), output, all, func() error { return printContexts(cmd, all, output) })
	})
}

func printContexts(cmd *cobra.Command, all []context, output string) error {
	rows := make([][]string, len(all))
	for i, c := range all {
		current := ""
		if c.Current {
			current = "*"
		}
		rows[i] = []string{current, c.Name, cmp.Or(c.Flags["server"], c.Flags["ready-file"]), cmp.Or(c.Flags["cluster"], "-")}
		if output == printer.Name {
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), printer.Text(c.Name)); err != nil {
				return err
			}
		}
	}
	if output == printer.Name {
		return nil
	}
	return printer.NewTable(cmd.OutOrStdout(), output, printer.Heads("CURRENT", "NAME", "MESH", "CLUSTER")).Write(rows...)
}

func newUseContext() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "use-context NAME",
		Short:   "Choose the mesh that commands talk to",
		Long:    "Use-context sets current-context in the settings file. The rest of the file stays as it is, comments too.",
		Example: "  portcullis config use-context prod",
		Args:    cobra.ExactArgs(1),
	}
	cmd.ValidArgsFunction = cli.CompleteContexts
	return bound(cmd, func(cmd *cobra.Command, s *cli.Settings, args []string) error {
		if err := s.Use(args[0]); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Commands use the context %q now.\n", args[0])
		return err
	})
}

func newCurrentContext() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "current-context",
		Short:   "Print the name of the current context",
		Long:    "Current-context prints the context that commands use when no flag or variable names a mesh.",
		Example: "  portcullis config current-context",
		Args:    cobra.NoArgs,
	}
	return bound(cmd, func(cmd *cobra.Command, s *cli.Settings, _ []string) error {
		if s.Current == "" {
			return cli.Refused(fmt.Errorf("settings %s has no current-context: `portcullis config use-context NAME` sets it", s.File))
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), printer.Text(s.Current))
		return err
	})
}
