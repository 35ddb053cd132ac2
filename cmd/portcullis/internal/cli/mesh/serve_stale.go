package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	adminv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admin/v1"
)

type serveStaleCommand struct {
	life    time.Duration
	reason  string
	revoke  bool
	timeout time.Duration
	mesh    connect.MeshAddress
	output  string
}

// NewServeStale returns "serve-stale".
func NewServeStale() *cobra.Command {
	var c serveStaleCommand
	cmd := &cobra.Command{
		Use:   "serve-stale [--for DURATION --reason TEXT | --revoke]",
		Short: "Let one dispatcher judge by its last configuration while its store is away",
		Long: `Serve-stale gives one dispatcher a permit: until it lapses, reviews are judged by the last configuration that this
dispatcher has read, however old it is. Without it reviews wait once the configuration is older than 5 s, and are then left to
the failurePolicy of the cluster's own entry.

It is for incidents. Changes since the store went away (a hook added or closed, a host's grant taken back) do not
count while it holds. It is said in the log each minute, by /readyz, in metrics, and in an audit annotation of each answer that
was judged so. It is about the one dispatcher that --server names: give it to each.

Who may give it is an operator whom the dispatcher was started with (serve --operator): Roles do not count, since they are in
the configuration. Without --for and --revoke it shows the permit.`,
		Example: `  portcullis serve-stale --for 1h --reason "INC-42: etcd has lost quorum" --server mesh-0.example.com:8444 ...
  portcullis serve-stale --ready-file /tmp/ready.json
  portcullis serve-stale --revoke --ready-file /tmp/ready.json`,
		Args: cobra.NoArgs,
		RunE: c.run,
	}
	f := cmd.Flags()
	f.DurationVar(&c.life, "for", 0, "how long the permit holds, at most 24h")
	f.StringVar(&c.reason, "reason", "", "why, for those who find it in the log")
	f.BoolVar(&c.revoke, "revoke", false, "end the permit")
	f.DurationVar(&c.timeout, "timeout", 10*time.Second, "how long an answer may take")
	cli.OutputFlag(cmd, &c.output, "how to print (default: sentences)", printer.JSON)
	c.mesh.Bind(f)
	return cli.WithSettings(cmd)
}

func (c *serveStaleCommand) run(cmd *cobra.Command, _ []string) error {
	switch given := cmd.Flags().Changed("for"); {
	case given && c.revoke:
		return errors.New("--for and --revoke: give a permit, or end it")
	case given && c.reason == "":
		return errors.New("--reason is missing: readers of the log have to know why the permit is there")
	case !given && c.reason != "":
		return errors.New("--for is missing: say how long the permit holds, for example --for 1h")
	}
	conn, err := c.mesh.Dial(connect.MaxAnswerBytes)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), c.timeout)
	defer cancel()
	answer, err := c.ask(ctx, adminv1.NewAdminServiceClient(conn), cmd.Flags().Changed("for"))
	if err != nil {
		return c.advise(err)
	}
	out := cmd.OutOrStdout()
	return printer.Print(out, c.output, printer.Message{Message: answer}, func() error { return printStale(out, answer) })
}

func (c *serveStaleCommand) ask(ctx context.Context, client adminv1.AdminServiceClient, give bool) (proto.Message, error) {
	switch {
	case give:
		return client.PermitStale(ctx, &adminv1.PermitStaleRequest{Life: durationpb.New(c.life), Reason: c.reason})
	case c.revoke:
		return client.RevokeStale(ctx, &adminv1.RevokeStaleRequest{})
	}
	return client.GetStale(ctx, &adminv1.GetStaleRequest{})
}

// advise puts an error in the words of the command line.
func (c *serveStaleCommand) advise(err error) error {
	s, ok := status.FromError(err)
	switch {
	case err == nil || !ok:
		return err
	case c.mesh.Refusal(err) != nil:
		return c.mesh.Refusal(err)
	case s.Code() == codes.Unavailable:
		return fmt.Errorf("%s does not answer: %s", c.mesh.Server, s.Message())
	}
	return errors.New(s.Message())
}

// printStale prints an answer as sentences.
func printStale(out io.Writer, answer proto.Message) error {
	var text string
	switch a := answer.(type) {
	case *adminv1.PermitStaleResponse:
		text = permitText(a.GetDispatcherId(), a.GetPermit())
	case *adminv1.RevokeStaleResponse:
		text = permitText(a.GetDispatcherId(), nil)
	case *adminv1.GetStaleResponse:
		text = permitText(a.GetDispatcherId(), a.GetPermit()) + ageText(a)
	}
	_, err := io.WriteString(out, text)
	return err
}

func permitText(id string, p *adminv1.StalePermit) string {
	if p == nil {
		return fmt.Sprintf("dispatcher %s has no permit: it judges by a fresh configuration alone\n", id)
	}
	restart := "a restart ends that (serve --state-dir keeps it)"
	if p.GetKept() {
		restart = "a restart keeps that"
	}
	return fmt.Sprintf("dispatcher %s judges by its last configuration, however old it is, until %s; %s\n  by %s: %s\n",
		id, p.GetUntil().AsTime().Format(time.RFC3339), restart, printer.Text(p.GetActor()), printer.Text(p.GetReason()))
}

func ageText(a *adminv1.GetStaleResponse) string {
	var how string
	switch listed := a.GetListed().AsTime().Format(time.RFC3339); {
	case a.GetListed() == nil:
		how = "none yet: nothing is judged, with a permit or without"
	case a.GetStale():
		how = a.GetDigest() + ": stale, listed last at " + listed
	default:
		how = a.GetDigest() + ": fresh, listed last at " + listed
	}
	text := "configuration " + how + "\n"
	for _, p := range a.GetProblems() {
		text += "  " + printer.Text(p) + "\n"
	}
	return text
}
