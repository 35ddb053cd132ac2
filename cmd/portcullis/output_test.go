package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestPrintableTakesAwayWhatCouldSteerATerminal(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"letters, also others than ours, stay":        {"größer als 5 → nein", "größer als 5 → nein"},
		"line ends stay":                              {"a\nb", "a\nb"},
		"escape sequences are taken away":             {"\x1b[31mred\x1b]0;title\x07", "\uFFFD[31mred\uFFFD]0;title\uFFFD"},
		"carriage returns cannot hide what was there": {"denied\rallowed", "denied\uFFFDallowed"},
		"nor can text that runs backwards":            {"a\u202eb", "a\uFFFDb"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := printable(tt.text); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestWriteTable(t *testing.T) {
	var out strings.Builder
	err := writeTable(&out, "  ", [][]string{{"NAME", "REASON"}, {"a long name", ""}, {"b", "two\nlines"}})
	if err != nil {
		t.Fatal(err)
	}
	if want := "  NAME         REASON\n  a long name\n  b            two lines\n"; out.String() != want {
		t.Errorf("got\n%q, want\n%q", out.String(), want)
	}
}

func TestChoiceFlag(t *testing.T) {
	newCommand := func() *cobra.Command {
		cmd := &cobra.Command{Use: "test"}
		output := outputFlag(cmd, "form", formatYAML, formatJSON)
		cmd.Run = func(cmd *cobra.Command, _ []string) { cmd.Print(output.value) }
		return cmd
	}
	if r := execute(t, newCommand(), nil, "-o", "json"); r.code != 0 || r.out != "json" {
		t.Errorf("-o json: %+v", r)
	}
	execute(t, newCommand(), nil, "-o", "xml").fails(t, `"-o, --output"`, "use yaml or json")
}
