// Package replay has the command that judges recorded requests by a configuration that is tried.
package replay

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/replay"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const (
	// waiting is how many requests wait for a judge.
	waiting = 16
	// callers is how many requests a running mesh judges at a time.
	callers = 8
	// progressEach is the number of requests between two lines of progress.
	progressEach = 500
)

type command struct {
	configs, inForce, objects []string
	cluster                   string
	since, until              string
	enforce, explain          bool
	limit                     int
	timeout                   time.Duration
	progress, output          string
	mesh                      connect.MeshAddress
}

// NewCommand returns "replay".
func NewCommand() *cobra.Command {
	var c command
	cmd := &cobra.Command{
		Use:   "replay LOG...",
		Short: "Judge recorded requests by policies that are tried, and say which verdicts change",
		Long: `Replay reads recorded requests and judges each by the policies of --config, in this process. It reports the requests that would be denied and
are allowed now, and all other differences, by policy, cluster, namespace and user, with the latest cases.

A log has one JSON document on each line: audit events of Kubernetes (with request objects: level Request, or RequestResponse for patches), or
AdmissionReviews, as "serve --record DIR" writes them. Files that end with .gz are unpacked, directories are read in the order of their file names,
and "-" is standard input. Requests for Secrets are left out, and so is all that admission is not asked about; the report counts them.

Each verdict is compared with the verdict of the policies in --in-force, or of a running mesh (--ready-file or --server), whose hooks stay, or else of
the log: it says whether a request was denied, and not by which policy. Without --config a running mesh has the configuration that is tried. It is asked
with dry runs: hooks are really called, and those with side effects are not. --objects has the objects of the cluster that policies ask for: Namespaces
with their labels, and params. An update whose object before it is not in the log is judged as though it changed nothing; the report counts them.

The exit code is 0 when no request would be denied that is allowed now, 1 when one would, 2 when the logs or the policies cannot be read.`,
		Example: `  portcullis replay audit.log --config policies --enforce --cluster prod-1
  portcullis replay audit.log --config policies --in-force main/policies --objects namespaces.yaml
  portcullis replay /var/lib/portcullis/reviews --config policies --since 2026-11-28T00:00:00Z --explain
  portcullis replay audit.log.gz --config policies -o json`,
		Args: func(_ *cobra.Command, logs []string) error {
			if len(logs) == 0 {
				return errors.New(`name the logs with recorded requests: files, directories, or "-" for standard input`)
			}
			return nil
		},
		RunE: c.run,
	}
	f := cmd.Flags()
	f.StringArrayVar(&c.configs, "config", nil, "file or directory of the policies that are tried; may be given several times")
	f.StringArrayVar(&c.inForce, "in-force", nil, "file or directory of the policies to compare with; may be given several times")
	f.StringArrayVar(&c.objects, "objects", nil, "file of objects that the cluster has, such as Namespaces and params; may be given several times")
	f.StringVar(&c.cluster, "cluster", "dev", "cluster of audit events; reviews that a dispatcher recorded name theirs")
	f.BoolVar(&c.enforce, "enforce", false, "judge as though each Policy of --config and --in-force were in mode enforce")
	f.StringVar(&c.since, "since", "", "leave out requests before this time, as 2026-11-28T09:00:00Z")
	f.StringVar(&c.until, "until", "", "leave out requests after this time")
	f.BoolVar(&c.explain, "explain", false, "show the values of the parts of the expressions that decide the cases")
	f.IntVar(&c.limit, "limit", 3, fmt.Sprintf("how many cases, namespaces and users of each change to print; json has up to %d cases", replay.MaxCases))
	f.DurationVar(&c.timeout, "timeout", 10*time.Second, "how long to wait for each answer of a running mesh")
	cli.ProgressFlag(cmd, &c.progress)
	cli.OutputFlag(cmd, &c.output, "json for tools (default: tables)", printer.JSON)
	c.mesh.Bind(f)
	return cli.WithSettings(cmd)
}

func (c *command) run(cmd *cobra.Command, paths []string) error {
	if len(c.configs) == 0 && !c.mesh.Given() {
		return errors.New("name the policies that are tried, --config PATH, or a running mesh that has them, --ready-file FILE or --server HOST:PORT")
	}
	if len(c.inForce) > 0 && len(c.configs) > 0 && c.mesh.Given() {
		return errors.New("--in-force and a running mesh: verdicts are compared with one of them")
	}
	files, err := replay.Files(paths...)
	switch {
	case err != nil:
		return err
	case len(files) == 0:
		return fmt.Errorf("%s: there is no file that ends with .log, .json, .jsonl or .ndjson, or one of these and .gz", strings.Join(paths, ", "))
	}
	log := &replay.Log{Cluster: c.cluster}
	if log.Since, err = timeOf("--since", c.since); err != nil {
		return err
	}
	if log.Until, err = timeOf("--until", c.until); err != nil {
		return err
	}
	side, end, err := c.sides(cmd)
	if err != nil {
		return err
	}
	defer end()
	progress := printer.NewProgress(cmd.ErrOrStderr(), c.progress)
	defer progress.Done()
	r, err := c.judge(cmd, side, log, files, progress)
	progress.Done()
	if err != nil {
		return err
	}
	report := &report{Report: r.Report(log), limit: c.limit}
	if r.Judged() == 0 {
		return errors.Join(errors.New("no request of the logs could be judged"), report.writeLeft(cmd.ErrOrStderr()))
	}
	if c.explain {
		if err := report.explain(cmd.Context(), side.Mesh, side.Candidate); err != nil {
			return err
		}
	}
	if err := printer.Print(cmd.OutOrStdout(), c.output, report, func() error { return report.write(cmd.OutOrStdout()) }); err != nil {
		return err
	}
	if report.Refuses() {
		return &cli.CodedError{Code: cli.ExitDenied}
	}
	return nil
}

func timeOf(flag, text string) (at time.Time, err error) {
	if text == "" {
		return at, nil
	}
	if at, err = time.Parse(time.RFC3339, text); err != nil {
		return at, fmt.Errorf("%s %q: write the time as 2026-11-28T09:00:00Z", flag, text)
	}
	return at, nil
}

// sides are the configurations that are compared.
func (c *command) sides(cmd *cobra.Command) (o replay.Options, end func(), err error) {
	facts := &offline.Facts{}
	if facts.Objects, err = offline.LoadObjects(c.objects...); err != nil {
		return o, nil, fmt.Errorf("--objects: %w", err)
	}
	o.Mesh, _ = offline.New(nil)
	end = func() {}
	var running replay.Judge // nil without a running mesh
	if c.mesh.Given() {
		conn, err := c.mesh.Dial(connect.MaxAnswerBytes)
		if err != nil {
			return o, nil, err
		}
		running, end = c.running(admissionv1.NewAdmissionServiceClient(conn)), func() { _ = conn.Close() }
	}
	o.Candidate = running
	if len(c.configs) > 0 {
		o.Now = running
		if o.Candidate, err = judgeOf(cmd, configuration{"--config", c.configs, c.enforce}, facts); err != nil {
			return o, nil, err
		}
	}
	if len(c.inForce) > 0 {
		o.Now, err = judgeOf(cmd, configuration{"--in-force", c.inForce, c.enforce}, facts)
	}
	return o, end, err
}

// running judges by a running mesh, which changes nothing.
func (c *command) running(client admissionv1.AdmissionServiceClient) replay.Judge {
	return func(ctx context.Context, r *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, c.timeout)
		defer cancel()
		r.Request = replay.DryRun(r.GetRequest())
		return client.Review(ctx, r)
	}
}

// configuration is a flag with the files of policies.
type configuration struct {
	flag    string
	paths   []string
	enforce bool
}

// judgeOf compiles the policies of files.
func judgeOf(cmd *cobra.Command, of configuration, facts *offline.Facts) (replay.Judge, error) {
	objects, problems, err := offline.Load(cmd.Context(), of.paths...)
	if err == nil {
		err = problems.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", of.flag, err)
	}
	if of.enforce {
		objects = offline.Enforced(objects)
	}
	mesh, problems := offline.New(objects)
	if err := problems.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", of.flag, err)
	}
	if len(mesh.Hooks()) == 0 {
		return nil, fmt.Errorf("%s %s: there is no policy in it", of.flag, strings.Join(of.paths, ", "))
	}
	for _, o := range mesh.Unjudged() {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s %q is left out: it needs a mesh\n", o.Origin(), o.WrittenKind(), o.Name)
	}
	judge, err := mesh.With(facts)
	if err != nil {
		return nil, err
	}
	return judge.Review, nil
}

// judge reads the logs, and judges their requests side by side.
func (c *command) judge(
	cmd *cobra.Command, side replay.Options, log *replay.Log, files []string, progress *printer.Progress,
) (*replay.Replay, error) {
	r, begun := replay.New(side), time.Now()
	group, ctx := errgroup.WithContext(cmd.Context())
	entries := make(chan *replay.Entry, waiting)
	judges := runtime.GOMAXPROCS(0)
	if c.mesh.Given() {
		judges = callers
	}
	for range judges {
		group.Go(func() error {
			for e := range entries {
				if err := r.Add(ctx, e); err != nil {
					return err
				}
			}
			return nil
		})
	}
	given := 0
	log.Each = func(e *replay.Entry) error {
		select {
		case entries <- e:
		case <-ctx.Done():
			return ctx.Err()
		}
		if given++; given%progressEach == 0 {
			progress.Sayf("%d requests of %d lines, %.0f/s", given, log.Lines, float64(given)/time.Since(begun).Seconds())
		}
		return nil
	}
	group.Go(func() error {
		defer close(entries)
		for _, file := range files {
			if err := log.Read(ctx, file, cmd.InOrStdin()); err != nil {
				return err
			}
		}
		return nil
	})
	return r, group.Wait()
}
