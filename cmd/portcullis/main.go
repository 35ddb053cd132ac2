// Portcullis is the one binary of the mesh: the dispatcher with its edges (serve), everything in one process to look at
// (dev), and the tools around them. This package puts the commands together.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/adapt"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/analyze"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/audit"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/bench"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/casetest"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/certs"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/check"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/cluster"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/console"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/contexts"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/host"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/policy"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/replay"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/review"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/shadow"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/localhosts"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/lonebridge"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/serve"
)

func main() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + spareThreads)
	}
	if os.Getenv("GOGC") == "" {
		spaceCollections()
	}
	redirectKlog()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := cli.Run(ctx, newRootCommand())
	stop()
	os.Exit(code)
}

// spareThreads is how many more threads run Go code than there are processors. Go takes a processor from a goroutine after 10 ms, so that a burst of
// large reviews holds up all others. Linux takes it from a thread earlier, for a thread that has slept (docs/design/0043).
const spareThreads = 1

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
	return cli.Group(root,
		serve.NewDevCommand(), serve.NewCommand(), lonebridge.NewCommand(), adapt.NewCommand(),
		review.NewCommand(), casetest.NewCommand(localhosts.Start), bench.NewCommand(), replay.NewCommand(), audit.NewCommand(),
		config.NewApply(), config.NewDiff(), config.NewGet(), config.NewExplain(), config.NewDelete(), config.NewLint(), policy.NewCommand(),
		check.NewCommand(), analyze.NewCommand(), shadow.NewCommand(), console.NewCommand(), contexts.NewCommand(),
		config.NewStore(), config.NewBypass(), mesh.NewServeStale(),
		cluster.NewCommand(), certs.NewCommand(), host.NewCommand(), cli.NewVersionCommand(),
	)
}
