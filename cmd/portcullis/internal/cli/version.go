package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
)

const unknownVersion = "(devel)"

type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"` // of the revision
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readBuild(info *debug.BuildInfo) build {
	b := build{Version: unknownVersion, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info == nil {
		return b
	}
	b.Version = cmp.Or(info.Main.Version, unknownVersion)
	b.Go = cmp.Or(info.GoVersion, b.Go)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// Version is the version of this program.
func Version() string {
	info, _ := debug.ReadBuildInfo()
	return readBuild(info).Version
}

// NewVersionCommand returns "version".
func NewVersionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print which portcullis this is",
		Long: "Version prints the version of the module, the revision that it was built from, and the Go that built it. " +
			"\"portcullis get dispatchers\" shows the versions of a mesh.",
		Example: "  portcullis version\n  portcullis version -o json",
		Args:    cobra.NoArgs,
	}
	var output string
	OutputFlag(cmd, &output, "json for tools (default: text)", printer.JSON)
	cmd.Flags().Bool("client", true, "print the version of this program, and ask no mesh")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		info, _ := debug.ReadBuildInfo()
		b := readBuild(info)
		return printer.Print(cmd.OutOrStdout(), output, b, func() error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), b)
			return err
		})
	}
	return cmd
}

// String is the build in one line.
func (b build) String() string {
	line := "portcullis " + b.Version
	if b.Revision != "" {
		line += " " + b.Revision
	}
	if b.Modified {
		line += " (modified)"
	}
	return line + " " + b.Go + " " + b.Platform
}
