package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/portcullis-mesh/portcullis/internal/cli/printer"
)

type choice struct {
	into  *string
	words []string
}

// String implements [pflag.Value].
func (c *choice) String() string { return *c.into }

// Set implements [pflag.Value].
func (c *choice) Set(word string) error {
	if !slices.Contains(c.words, word) {
		return fmt.Errorf("use %s", strings.Join(c.words, " or "))
	}
	*c.into = word
	return nil
}

// Type implements [pflag.Value].
func (c *choice) Type() string { return strings.Join(c.words, "|") }

// ChoiceFlag adds a flag that takes one of a few words, and completes them. Without the flag into stays empty.
func ChoiceFlag(cmd *cobra.Command, into *string, name, usage string, words ...string) {
	addChoice(cmd, &choice{into, words}, pflag.Flag{Name: name, Usage: usage})
}

// OutputFlag adds -o, the form of the output.
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

// dryRun is a flag that is there or not, and takes the words that kubectl takes for it.
type dryRun struct{ set *bool }

// DryRunFlag adds --dry-run.
func DryRunFlag(cmd *cobra.Command, set *bool, usage string) {
	cmd.Flags().VarPF(dryRun{set}, "dry-run", "", usage).NoOptDefVal = "true"
}

// String is part of pflag.Value.
func (d dryRun) String() string { return strconv.FormatBool(d.set != nil && *d.set) }

// Type is part of pflag.Value.
func (dryRun) Type() string { return "bool" }

// Set is part of pflag.Value.
func (d dryRun) Set(word string) error {
	switch word {
	case "server":
		*d.set = true
		return nil
	case "none":
		*d.set = false
		return nil
	case "client":
		return errors.New("nothing is checked without the mesh: use --dry-run, which asks it and changes nothing")
	}
	set, err := strconv.ParseBool(word)
	if err != nil {
		return errors.New("use it alone, or with server or none")
	}
	*d.set = set
	return nil
}

// Group makes a command of commands: alone it prints its help, and an argument that names none of them is an error.
func Group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(commands...)
	cmd.DisableFlagsInUseLine = true
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("there is no %q; `%s --help` lists what there is", cmd.CommandPath()+" "+args[0], cmd.CommandPath())
		}
		return cmd.Help()
	}
	return cmd
}
