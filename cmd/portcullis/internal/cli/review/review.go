// Package review has the command that sends one review to a mesh and shows the verdict of each hook.
package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// defaultCluster is the cluster of the samples of dev.
const defaultCluster = "dev"

type command struct {
	file, cluster string
	by            creator
	explain       bool
	timeout       time.Duration
	mesh          connect.MeshAddress
	stage, output string
}

// NewCommand returns "review".
func NewCommand() *cobra.Command {
	var c command
	cmd := &cobra.Command{
		Use:   "review -f FILE",
		Short: "Send reviews to a running mesh and show the answer of each hook",
		Long: `Review sends an AdmissionReview, as JSON or YAML, or a bare AdmissionRequest, to a running mesh and prints the verdict
and the answer of each hook. Any other object, as it stands in a manifest, is sent as the request of its creation by --user in --namespace; a file may
have several documents. With --explain it also lists the hooks that were not called, and why, waits for the hooks in shadow to say what
they would have done ("shadow: denied"), and applies the mutating hooks a second time to their own result, as a dry run, to name those
that change it again: an API server may call them twice.

It asks what an API server would ask: the mutating hooks first, and then the validating ones about what they made of the
object. --stage asks for one of them alone, or with admit for both in one review, as a direct caller would. Hooks are really
called; set dryRun in the request where they have side effects.

The mesh is found by the ready file that "portcullis dev --ready-file" writes, or by the address of the listener for hosts
(serve --listen-hosts) and a client certificate whose identity may send reviews of the cluster.

The trace of the review is printed last: its spans are in your trace viewer if the mesh exports spans, and "portcullis analyze" finds the
review by it. TRACEPARENT continues another trace, and the OTEL_* variables export a span of the command itself.

The exit code is 0 when all reviews are allowed, 1 when a hook denies one, 2 when there is no verdict: it has failed, that is, it is
refused because a hook that is fail-closed gave none, or the mesh refused to judge it.`,
		Example: `  portcullis dev --ready-file /tmp/ready.json
  portcullis review -f pod.yaml --ready-file /tmp/ready.json --explain
  kubectl create deployment web --image nginx --dry-run=client -o yaml | portcullis review -f - --user jane --group developers

  PORTCULLIS_READY_FILE=/tmp/ready.json portcullis review -f - -o json < request.yaml

  portcullis review -f pod.yaml --cluster prod-1 --stage validate -o json \
    --server mesh.example.com:8444 --ca ca.crt --cert apiserver.crt --key apiserver.key`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
		},
	}
	f := cmd.Flags()
	f.StringVarP(&c.file, "filename", "f", "", `file with the object or the review; "-" is standard input`)
	f.StringVarP(&c.by.namespace, "namespace", "n", "default", "namespace of objects that name none, and are not reviews")
	f.StringVar(&c.by.user, "user", "kubernetes-admin", "user who creates objects that are not reviews")
	f.StringArrayVar(&c.by.groups, "group", []string{"system:authenticated"}, "group of that user; may be given several times")
	f.StringVar(&c.cluster, "cluster", defaultCluster, "cluster to speak for")
	f.BoolVar(&c.explain, "explain", false,
		"also say which hooks were not called, and why, what hooks in shadow would have decided, and whether mutating hooks are idempotent")
	f.DurationVar(&c.timeout, "timeout", 10*time.Second, "how long to wait for each stage")
	cli.ChoiceFlag(cmd, &c.stage, "stage", "ask for one stage alone, or for all in one review (default: mutate, then validate)",
		"mutate", "validate", "admit")
	cli.OutputFlag(cmd, &c.output, "json for tools (default: text)", printer.JSON)
	c.mesh.Bind(f)
	return cli.WithSettings(cmd)
}

func (c *command) run(ctx context.Context, in io.Reader, out io.Writer, log *slog.Logger) (err error) {
	if c.timeout <= 0 {
		return fmt.Errorf("--timeout %s: must be more than nothing", c.timeout)
	}
	requests, err := c.read(in)
	if err != nil {
		return err
	}
	conn, err := c.mesh.Dial(connect.MaxAnswerBytes)
	if err != nil {
		return err
	}
	defer conn.Close()
	client, all := admissionv1.NewAdmissionServiceClient(conn), &reports{alone: len(requests) == 1}
	for _, request := range requests {
		r, failed := c.review(ctx, client, request, log)
		if r != nil {
			all.Reviews = append(all.Reviews, r)
		}
		if err = failed; err != nil {
			break
		}
	}
	if len(all.Reviews) > 0 { // also the reviews before a failed one
		err = errors.Join(all.write(out, c.output), err)
	}
	if err != nil {
		return err
	}
	return all.err()
}

// review sends one review through its stages. Without a verdict there is no report. A trace that cannot be exported is an error too, beside the
// report.
func (c *command) review(
	ctx context.Context, client admissionv1.AdmissionServiceClient, request *admissionv1.AdmissionRequest, log *slog.Logger,
) (r *report, err error) {
	ctx, t := startTrace(ctx, log, request)
	r = &report{Object: objectOf(request), Cluster: c.cluster, UID: request.GetUid(), TraceID: t.id.String(), Allowed: true}
	err = c.judge(ctx, client, request, r)
	failure := r.failure(cmp.Or(err, r.err()))
	if err != nil {
		r = nil
	}
	return r, errors.Join(err, t.end(context.WithoutCancel(ctx), failure))
}

// judge asks for each stage, and adds the answers to a report.
func (c *command) judge(ctx context.Context, client admissionv1.AdmissionServiceClient, request *admissionv1.AdmissionRequest, r *report) error {
	for _, stage := range c.stages() {
		answer, err := c.ask(ctx, client, request, stage, c.explain)
		if refused := (refusedError{}); errors.As(err, &refused) {
			r.refuse(stage, refused.message)
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", stageWord(stage), err)
		}
		r.add(stage, answer, c.explain)
		if !r.Allowed {
			break
		}
		if request, err = patched(request, answer.GetResponse().GetPatch()); err != nil {
			return fmt.Errorf("%s: the answer's patch: %w", stageWord(stage), err)
		}
		if c.explain && stage != admissionv1.Stage_STAGE_VALIDATE {
			r.Stages[len(r.Stages)-1].Idempotency = c.again(ctx, client, request, answer)
		}
	}
	return nil
}

// read reads the requests, which an API server could send, for the cluster that is spoken for.
func (c *command) read(in io.Reader) ([]*admissionv1.AdmissionRequest, error) {
	if c.file == "" {
		return nil, errors.New(`name the file with the object or the review: -f FILE, or -f - for standard input`)
	}
	name := c.file
	if name == "-" {
		name = "standard input"
	} else {
		f, err := os.Open(c.file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("-f: %w", cli.NoFile(c.file))
		}
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	requests, err := readReviews(in, c.by)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case len(requests) == 0:
		return nil, fmt.Errorf("%s: there is no document", name)
	}
	for _, request := range requests {
		if err := possible(request); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		request.Cluster = c.cluster
	}
	return requests, nil
}

// possible returns an error about a request that no rule could match.
func possible(request *admissionv1.AdmissionRequest) error {
	operations := []string{"CREATE", "UPDATE", "DELETE", "CONNECT"}
	if !slices.Contains(operations, request.GetOperation()) {
		return fmt.Errorf("the operation of the request is %q: no rule could name it; use %s",
			request.GetOperation(), strings.Join(operations, ", "))
	}
	if request.GetResource().GetResource() == "" {
		return errors.New("the request names no resource, so no rule would cover it: " +
			"give it a resource, as API servers do, for example {group: apps, version: v1, resource: deployments}")
	}
	return nil
}

func (c *command) stages() []admissionv1.Stage {
	if c.stage == stageWord(admissionv1.Stage_STAGE_ADMIT) {
		return []admissionv1.Stage{admissionv1.Stage_STAGE_ADMIT}
	}
	all := []admissionv1.Stage{admissionv1.Stage_STAGE_MUTATE, admissionv1.Stage_STAGE_VALIDATE}
	return slices.DeleteFunc(all, func(s admissionv1.Stage) bool { return c.stage != "" && c.stage != stageWord(s) })
}

func (c *command) ask(
	ctx context.Context, client admissionv1.AdmissionServiceClient, request *admissionv1.AdmissionRequest, stage admissionv1.Stage,
	awaitShadows bool,
) (*admissionv1.ReviewResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	answer, err := client.Review(ctx, &admissionv1.ReviewRequest{Stage: stage, Request: request, Explain: true, AwaitShadows: awaitShadows})
	if err != nil {
		return nil, c.advise(err)
	}
	return answer, nil
}

// refusedError is the mesh's own word that it does not judge a review, with advice.
type refusedError struct{ message string }

// Error implements error.
func (e refusedError) Error() string { return e.message }

// advise turns the error of a call without an answer into advice.
func (c *command) advise(err error) error {
	s, address := status.Convert(err), c.mesh.Server
	message := strings.TrimPrefix(s.Message(), "portcullis: ")
	switch {
	case message != s.Message():
		return refusedError{message}
	case c.mesh.Refusal(err) != nil:
		return c.mesh.Refusal(err)
	case s.Code() == codes.Unavailable:
		return fmt.Errorf("no mesh answers at %s: check that it runs, and that this is its listener for hosts (%s)",
			address, message)
	case s.Code() == codes.Unimplemented:
		return fmt.Errorf("%s serves no reviews over gRPC: name the listener for hosts (serve --listen-hosts) (%s)", address, message)
	case s.Code() == codes.DeadlineExceeded:
		return fmt.Errorf("no answer within %s: give it more time with --timeout, or look at the metrics of its hooks", c.timeout)
	}
	return err
}

func patched(request *admissionv1.AdmissionRequest, patch []byte) (*admissionv1.AdmissionRequest, error) {
	if len(patch) == 0 {
		return request, nil
	}
	changed, err := conversion.ApplyPatch(request.GetObject().GetRaw(), patch)
	if err != nil {
		return nil, err
	}
	request = proto.CloneOf(request)
	request.Object.Raw = changed.Raw
	return request, nil
}

func stageWord(s admissionv1.Stage) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "STAGE_"))
}
