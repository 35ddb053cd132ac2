package main

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/internal/cli/printer"
)

func TestChoiceFlag(t *testing.T) {
	newCommand := func() *cobra.Command {
		cmd := &cobra.Command{Use: "test"}
		output := outputFlag(cmd, "form", printer.YAML, printer.JSON)
		cmd.Run = func(cmd *cobra.Command, _ []string) { cmd.Print(output.value) }
		return cmd
	}
	if r := execute(t, newCommand(), nil, "-o", "json"); r.code != 0 || r.out != "json" {
		t.Errorf("-o json: %+v", r)
	}
	execute(t, newCommand(), nil, "-o", "xml").fails(t, `"-o, --output"`, "use yaml or json")
}
