package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
)

type choice struct {
	into  *string
	words []string
}

// String implements [pflag.Value].
func (c *choice) String() string { return *c.into }

// Set implements [pflag.Value].
func (c *choice) Set(word string) error {
	template := slices.ContainsFunc(c.words, func(w string) bool { return strings.HasSuffix(w, "=") && strings.HasPrefix(word, w) })
	switch {
	case template:
		if err := printer.CheckTemplate(word); err != nil {
			return err
		}
	case !slices.Contains(c.words, word):
		return fmt.Errorf("use %s", strings.Join(c.words, " or "))
	}
	*c.into = word
	return nil
}

// Type implements [pflag.Value].
func (c *choice) Type() string { return strings.Join(c.words, "|") }

// ChoiceFlag adds a flag that takes a word from a list, and completes it. Without the flag into stays empty.
func ChoiceFlag(cmd *cobra.Command, into *string, name, usage string, words ...string) {
	addChoice(cmd, &choice{into, words}, pflag.Flag{Name: name, Usage: usage})
}

// OutputFlag adds -o, the form of the output. A template follows a format that ends with "=".
func OutputFlag(cmd *cobra.Command, into *string, usage string, formats ...string) {
	addChoice(cmd, &choice{into, formats}, pflag.Flag{Name: "output", Shorthand: "o", Usage: usage})
}

func addChoice(cmd *cobra.Command, c *choice, f pflag.Flag) {
	f.Value = c
	cmd.Flags().AddFlag(&f)
	_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(c.words, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// ProgressFlag adds --progress.
func ProgressFlag(cmd *cobra.Command, into *string) {
	ChoiceFlag(cmd, into, "progress", "how to tell how far it is, on standard error (default: on a terminal alone)",
		printer.ProgressTerminal, printer.ProgressLines, printer.ProgressNone)
}

// DryRun is how much of a change is tried without making it. It is the value of --dry-run, in the words of kubectl.
type DryRun string

// The values of --dry-run. Alone the flag means server.
const (
	DryRunNone   DryRun = ""       // the change is made
	DryRunClient DryRun = "client" // the mesh is not asked
	DryRunServer DryRun = "server" // the mesh checks it
)

// DryRunFlag adds --dry-run.
func DryRunFlag(cmd *cobra.Command, into *DryRun) {
	cmd.Flags().VarPF(into, "dry-run", "", "change nothing: have the mesh check it (server), or only read the files (client)").
		NoOptDefVal = string(DryRunServer)
}

// String implements [pflag.Value].
func (d *DryRun) String() string { return cmp.Or(string(*d), "none") }

// Type implements [pflag.Value].
func (*DryRun) Type() string { return "none|client|server" }

// Set implements [pflag.Value].
func (d *DryRun) Set(word string) error {
	switch word {
	case string(DryRunClient), string(DryRunServer):
		*d = DryRun(word)
	case "true":
		*d = DryRunServer
	case "none", "false":
		*d = DryRunNone
	default:
		return errors.New("use it alone, or with client, server or none")
	}
	return nil
}

// Group makes a command of commands: alone it prints its help, and an argument that names none of them is an error.
func Group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(commands...)
	cmd.DisableFlagsInUseLine = true
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return noCommand(cmd, args[0])
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}
