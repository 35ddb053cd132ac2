package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"
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

// formatJSON and formatYAML are what -o may say.
const (
	formatJSON = "json"
	formatYAML = "yaml"
)

// writeJSON writes v indented, and characters as they are.
func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// writeTable writes rows in columns, each line after the indent. A row ends with a cell that is not aligned.
func writeTable(w io.Writer, indent string, rows [][]string) error {
	var text strings.Builder
	columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = strings.ReplaceAll(printable(cell), "\n", " ")
		}
		fmt.Fprintf(columns, "%s%s\n", indent, strings.Join(cells, "\t"))
	}
	if err := columns.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// printable is text of somebody else's without what could steer a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
