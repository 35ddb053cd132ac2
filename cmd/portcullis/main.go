// Portcullis is the one binary of the mesh: the dispatcher with its edges (serve), everything in one process to look at
// (dev), and the tools around them. This package is wiring and the command line; it decides nothing about reviews.
package main

import configcli "github.com/portcullis-mesh/portcullis/internal/cli/config"


import "github.com/portcullis-mesh/portcullis/internal/cli/mesh"


import clustercli "github.com/portcullis-mesh/portcullis/internal/cli/cluster"


import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/internal/cli"
	certscli "github.com/portcullis-mesh/portcullis/internal/cli/certs"
	reviewcli "github.com/portcullis-mesh/portcullis/internal/cli/review"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := cli.Run(ctx, newRootCommand())
	stop()
	os.Exit(code)
}

// newRootCommand is the command line as a whole.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "portcullis",
		Short: "An admission service mesh for Kubernetes",
		Long: `Portcullis takes the admission reviews of many Kubernetes clusters, finds the hooks that apply, encodes each review
once, and fans it out over long-lived streams to the hosts that serve them. It folds their verdicts into one answer.

Begin with "portcullis dev": it runs everything in one process and prints how to send it a review.`,
		Version:       cli.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		newDevCommand(), newServeCommand(), reviewcli.NewCommand(),
		configcli.NewApply(), configcli.NewDiff(), configcli.NewGet(), configcli.NewExplain(), configcli.NewDelete(),
		configcli.NewStore(), mesh.NewServeStale(),
		clustercli.NewCommand(), certscli.NewCommand(), cli.NewVersionCommand(),
	)
	return root
}
