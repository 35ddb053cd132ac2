package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/internal/cli/printer"
)

// choice is a flag that takes one of a few words.
type choice struct {
	value string
	words []string
}

// String is the word that was chosen; empty for none.
func (c *choice) String() string { return c.value }

// Set chooses a word.
func (c *choice) Set(word string) error {
	if !slices.Contains(c.words, word) {
		return fmt.Errorf("use %s", strings.Join(c.words, " or "))
	}
	c.value = word
	return nil
}

// Type is what help shows behind the flag.
func (c *choice) Type() string { return strings.Join(c.words, "|") }

// choiceFlag adds a flag that takes one of a few words, and completes them.
func choiceFlag(cmd *cobra.Command, name, shorthand, usage string, words ...string) *choice {
	c := &choice{words: words}
	cmd.Flags().VarP(c, name, shorthand, usage)
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return c
}

// outputFlag adds -o, the form of what a command prints.
func outputFlag(cmd *cobra.Command, usage string, formats ...string) *choice {
	return choiceFlag(cmd, "output", "o", usage, formats...)
}

// progressFlag adds --progress.
func progressFlag(cmd *cobra.Command) *choice {
	return choiceFlag(cmd, "progress", "", "how to tell how far it is, on standard error (default: on a terminal alone)",
		printer.ProgressTerminal, printer.ProgressLines, printer.ProgressNone)
}
