// Package check has the command that finds out why a mesh does not work: whether it can be reached, its certificates, its configuration
// and its hosts.
package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// Results of a check.
const (
	ok      = "success"
	warning = "warning"
	failed  = "error"
)

// line is one check and its result.
type line struct {
	// Category is the group of the check: certificates, connection, configuration, hooks, entries or api server.
	Category string `json:"category"`
	// Description is the property that is checked.
	Description string `json:"description"`
	// Result is "success", "warning" or "error".
	Result string `json:"result"`
	// Detail is the finding; for a success it may be empty.
	Detail string `json:"detail,omitempty"`
	// Hint is the next step of the operator.
	Hint string `json:"hint,omitempty"`
}

// report collects the results. It is for one goroutine.
type report struct {
	now   time.Time
	lines []line
}

func (r *report) ok(category, description, detail string) {
	r.add(line{category, description, ok, detail, ""})
}

func (r *report) warn(category, description, detail, hint string) {
	r.add(line{category, description, warning, detail, hint})
}

func (r *report) fail(category, description string, err error, hint string) {
	r.add(line{category, description, failed, err.Error(), hint})
}

// add adds a line. Its detail may quote an API server, which quotes URLs.
func (r *report) add(l line) {
	l.Detail = identity.Redact(l.Detail)
	r.lines = append(r.lines, l)
}

// count is the number of checks with a result.
func (r *report) count(result string) (n int) {
	for _, l := range r.lines {
		if l.Result == result {
			n++
		}
	}
	return n
}

type checkCommand struct {
	url     string
	timeout time.Duration
	output  string
	mesh    connect.MeshAddress
	cluster apiServer
}

// NewCommand returns "check".
func NewCommand() *cobra.Command {
	var c checkCommand
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Find the faults that keep the mesh from working",
		Long: `Check looks at the certificates of this command and of the mesh, whether the mesh answers, whether each dispatcher judges by a fresh
configuration, whether each hook in force has a host, and whether the entries of each cluster are current. It changes nothing. A line
that is not a success has the next step below it. With --url it also looks at the listener for API servers, and with --api-server at the
entries in a cluster: whether their caBundle vouches for the mesh.
` + connect.Usage + `
Exit codes: 0 without errors (there may be warnings); 1 when the mesh answers and something is wrong; 2 when it does not answer, or the
command was called wrongly.`,
		Example: `  portcullis check --ready-file /tmp/ready.json
  portcullis check --context prod --url https://mesh.example.com:8443 -o json`,
		Args: cobra.NoArgs,
		RunE: c.run,
	}
	f := cmd.Flags()
	f.StringVar(&c.url, "url", "", "where API servers reach the mesh (serve --listen); the ready file of dev has it")
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long all checks may take")
	cli.OutputFlag(cmd, &c.output, "json for tools (default: text)", printer.JSON)
	c.mesh.Bind(f)
	c.cluster.bind(f)
	return cli.WithSettings(cmd)
}

func (c *checkCommand) run(cmd *cobra.Command, _ []string) error {
	files, err := c.mesh.Files()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), c.timeout)
	defer cancel()
	r := &report{now: time.Now()}
	r.ownCertificates(files)
	reached := r.connection(ctx, files, c.url)
	if reached {
		err := c.mesh.Config(ctx, 0, func(ctx context.Context, client configv1.ConfigServiceClient) error { return r.mesh(ctx, client) })
		if err != nil {
			r.fail(configuration, "the mesh shows its configuration", err, hintFor(err))
		}
	}
	r.clusterEntries(ctx, c.cluster)
	if err := r.print(cmd.OutOrStdout(), c.output); err != nil {
		return err
	}
	switch {
	case !reached:
		return &cli.CodedError{Code: cli.ExitError}
	case r.count(failed) > 0:
		return &cli.CodedError{Code: cli.ExitDenied}
	}
	return nil
}

// hintFor is the next step after a call without an answer.
func hintFor(err error) string {
	if refused := (*cli.CodedError)(nil); errors.As(err, &refused) {
		return "the identity of the client certificate needs a Role, or --operator of serve; `portcullis certs show` prints it"
	}
	return "try again; the log of the dispatcher has more"
}

func (r *report) print(out io.Writer, format string) error {
	if format == printer.JSON {
		return printer.WriteJSON(out, map[string]any{"success": r.count(failed) == 0, "checks": r.lines})
	}
	marks := map[string]string{ok: "ok  ", warning: "warn", failed: "FAIL"}
	if printers.IsTerminal(out) {
		marks = map[string]string{ok: "✓", warning: "!", failed: "×"}
	}
	category := ""
	for _, l := range r.lines {
		text := ""
		if l.Category != category {
			category = l.Category
			text = category + "\n"
		}
		text += fmt.Sprintf("  %s %s", marks[l.Result], l.Description)
		if l.Detail != "" {
			text += ": " + l.Detail
		}
		if l.Hint != "" {
			text += "\n       " + l.Hint
		}
		if _, err := fmt.Fprintln(out, printer.Text(text)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "%d checks, %d errors, %d warnings\n", len(r.lines), r.count(failed), r.count(warning))
	return err
}
