// Package review has the command that judges manifests and reviews by a mesh, or by files of policies.
package review

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// defaultCluster is the cluster of the samples of dev.
const defaultCluster = "dev"

type command struct {
	files, configs  []string
	old             string
	namespaceLabels string
	by              client
	explain         bool
	enforce         bool
	timeout         time.Duration
	mesh            connect.MeshAddress
	stage, output   string
}

// NewCommand returns "review".
func NewCommand() *cobra.Command {
	var c command
	cmd := &cobra.Command{
		Use:   "review -f PATH...",
		Short: "Judge manifests and reviews by a running mesh, or by files of policies",
		Long: `Review judges the objects of manifests as a mesh would: files of several documents, Lists, and directories with all *.yaml, *.yml and *.json below
them; "-" is standard input. An object is the request of its creation by --as in --namespace. With --old, which has the objects as they
were before, each object that is there too is an UPDATE; --operation names another operation. An AdmissionReview, or a bare AdmissionRequest, is
judged as it is. In directories, documents of kustomize and documents without apiVersion and kind are left out.

With --config the policies of files judge, in this process: no mesh and no certificate is needed. Hooks, which need a host, are left out. A
Policy in shadow refuses nothing, and its denials are listed; --enforce has each Policy refuse. Otherwise a running mesh judges. It is found by
the ready file that "portcullis dev --ready-file" writes, or by the address of the listener for hosts (serve --listen-hosts) and a client
certificate whose identity may send reviews of the cluster.

A review goes the way of an API server's: the mutating hooks first, and then the validating hooks about the changed
object. --stage asks for one of them alone, or with admit for both in one review, as a direct caller would. Hooks of a running mesh are
really called; set dryRun in the request where they have side effects.

Each document has a line with its place, its verdict, the policy or hook, and the message; one with several denials or warnings has a line for
each. A line names the line of the field if the message begins with a field. -o wide, and a single document, show the answer of each hook.
--explain also lists the hooks that were not called, and why, waits for the verdicts of the hooks in shadow
("shadow: denied"), and applies the mutating hooks a second time to their own result, as a dry run, to name those that change it again: an API
server may call them twice. Of policies it shows the value of each part of an expression that is false or fails.

The trace of a review by a mesh is printed with its details: its spans are in your trace viewer if the mesh exports spans, and
"portcullis analyze" finds the review by it. TRACEPARENT continues another trace, and the OTEL_* variables export a span of the command itself.

The exit code is 0 when all documents are allowed, 1 when one is denied, 2 when there is no verdict about one: it cannot be read, it has
failed, that is, it is refused because a hook that is fail-closed gave none, or the mesh refused to judge it.`,
		Example: `  portcullis review -f deploy --config policies --enforce
  portcullis review -f deploy --config policies --as jane --as-group developers --namespace-labels env=prod
  portcullis review -f deploy --config policies -o github

  git show main:web.yaml | portcullis review -f web.yaml --old - --config policies

  portcullis dev --ready-file /tmp/ready.json
  portcullis review -f pod.yaml --ready-file /tmp/ready.json --explain
  kubectl create deployment web --image nginx --dry-run=client -o yaml | portcullis review -f - --ready-file /tmp/ready.json

  PORTCULLIS_READY_FILE=/tmp/ready.json portcullis review -f - -o json < request.yaml

  portcullis review -f pod.yaml --cluster prod-1 --stage validate -o json \
    --server mesh.example.com:8444 --ca ca.crt --cert apiserver.crt --key apiserver.key`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c.files = append(c.files, args...)
			return c.run(cmd)
		},
	}
	c.bind(cmd)
	return cli.WithSettings(cmd)
}

// bind adds the flags.
func (c *command) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVarP(&c.files, "filename", "f", nil,
		`file or directory of objects and reviews; "-" is standard input; may be given several times, and arguments count too`)
	f.StringArrayVar(&c.configs, "config", nil, "file or directory of policies that judge, in the place of a mesh; may be given several times")
	f.BoolVar(&c.enforce, "enforce", false, "with --config: judge as though each Policy were in mode enforce")
	f.StringVar(&c.old, "old", "", "file or directory of the objects as they were before, which are found by kind, namespace and name")
	cli.ChoiceFlag(cmd, &c.by.operation, "operation",
		"operation on objects (default: UPDATE of objects in --old, CONNECT of options such as PodExecOptions, or CREATE)",
		offline.OperationCreate, offline.OperationUpdate, offline.OperationDelete, offline.OperationConnect)
	f.StringVarP(&c.by.namespace, "namespace", "n", "default", "namespace of objects that name none")
	f.StringVar(&c.namespaceLabels, "namespace-labels", "",
		"with --config: labels of the namespaces of all objects, as env=prod,tier=a; a Namespace among the objects has its own labels too")
	f.StringVar(&c.by.user, "as", offline.DefaultUser, "user who makes the requests")
	f.StringArrayVar(&c.by.groups, "as-group", nil, "group of that user; may be given several times; the groups that an API server adds are added")
	f.StringVar(&c.by.cluster, "cluster", defaultCluster, "cluster to speak for")
	f.BoolVar(&c.explain, "explain", false,
		"also say which hooks were not called, and why, how hooks in shadow would have decided, and whether mutating hooks are idempotent")
	f.DurationVar(&c.timeout, "timeout", 10*time.Second, "how long to wait for each stage")
	cli.ChoiceFlag(cmd, &c.stage, "stage", "ask for one stage alone, or for all in one review (default: mutate, then validate)",
		"mutate", "validate", "admit")
	cli.OutputFlag(cmd, &c.output, "wide for the answers of all hooks, json for tools, github for annotations, sarif for scanners (default: text)",
		printer.Wide, printer.JSON, formatGitHub, formatSARIF)
	c.mesh.Bind(f)
}

func (c *command) run(cmd *cobra.Command) (err error) {
	switch {
	case c.timeout <= 0:
		return fmt.Errorf("--timeout %s: must be more than nothing", c.timeout)
	case len(c.files) == 0:
		return errors.New("name the files with the objects or reviews: -f PATH, or -f - for standard input")
	case c.namespaceLabels != "" && len(c.configs) == 0:
		return errors.New("--namespace-labels is for --config: a mesh reads the labels of namespaces in the cluster")
	case c.enforce && len(c.configs) == 0:
		return errors.New("--enforce is for --config: a mesh has its policies in their modes")
	case c.old == "-" && slices.Contains(c.files, "-"):
		return errors.New("--old - and -f -: standard input is read once")
	}
	if err := c.load(cmd); err != nil {
		return err
	}
	in, err := c.read(cmd.Context(), cmd.InOrStdin())
	if err != nil {
		return err
	}
	alone := len(in.documents) == 1 && !in.documents[0].found
	forPeople := c.output == "" || c.output == printer.Wide
	if d := &in.documents[0]; alone && d.err != nil && forPeople {
		return fmt.Errorf("%s: %w", d.place(""), d.err)
	}
	judge, end, err := c.judge(cmd.Context(), in)
	if err != nil {
		return err
	}
	defer end()
	all := newOutput(cmd.OutOrStdout(), cmd.ErrOrStderr(), c.output)
	all.summary.Foreign = in.foreign
	all.alone, all.detailed = alone, alone || c.explain || c.output == printer.Wide
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	for i := range in.documents {
		r, failed := c.review(cmd.Context(), judge, &in.documents[i], log)
		if r != nil {
			failed = errors.Join(failed, all.add(&in.documents[i], r))
		}
		if err = failed; err != nil {
			break
		}
	}
	if all.summary.Reviewed > 0 { // also the reviews before a failed one
		err = errors.Join(all.end(), err)
	}
	if err == nil && all.code != 0 {
		err = &cli.CodedError{Code: all.code}
	}
	return err
}

// review sends one review through its stages. Without a verdict there is no report. A trace that cannot be exported is an error too, beside the
// report.
func (c *command) review(ctx context.Context, j judge, d *document, log *slog.Logger) (r *report, err error) {
	r = &report{File: d.file, Line: d.line(""), Cluster: c.by.cluster, Stages: []stageReport{}}
	if d.err != nil {
		r.Error = d.err.Error()
		return r, nil //nolint:nilerr // the report has the error
	}
	r.Object, r.UID, r.Allowed = objectOf(d.request), d.request.GetUid(), true
	if d.made { // a review comes from an API server, which knows its kinds
		r.Warnings = c.by.mesh.Mistakes(d.request)
	}
	if len(c.configs) > 0 {
		return r, c.stagesOf(ctx, j, d.request, r)
	}
	ctx, t := startTrace(ctx, log, d.request)
	r.TraceID = t.id.String()
	err = c.stagesOf(ctx, j, d.request, r)
	failure := r.failure(err)
	if err != nil {
		r = nil
	}
	return r, errors.Join(err, t.end(context.WithoutCancel(ctx), failure))
}

// stagesOf asks for each stage, and adds the answers to a report.
func (c *command) stagesOf(ctx context.Context, j judge, request *admissionv1.AdmissionRequest, r *report) error {
	for _, stage := range c.stages() {
		answer, err := c.ask(ctx, j, request, stage, c.explain)
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
			r.Stages[len(r.Stages)-1].Idempotency = c.again(ctx, j, request, answer)
		}
	}
	return nil
}

// read reads the documents.
func (c *command) read(ctx context.Context, standard io.Reader) (*input, error) {
	if c.old != "" {
		earlier := c.by
		earlier.operation = offline.OperationCreate
		if err := c.by.readBefore(ctx, &input{standard: standard, by: &earlier}, c.old); err != nil {
			return nil, fmt.Errorf("--old: %w", err)
		}
	}
	in := &input{standard: standard, by: &c.by}
	for _, path := range c.files {
		if err := in.read(ctx, path); err != nil {
			return nil, fmt.Errorf("-f: %w", err)
		}
	}
	if len(in.documents) == 0 {
		return nil, fmt.Errorf("-f %s: there is no object in it", strings.Join(c.files, " -f "))
	}
	for i := range in.documents {
		if d := &in.documents[i]; d.err == nil {
			d.request.Cluster, d.err = c.by.cluster, possible(d.request)
		}
	}
	return in, nil
}

func (c *command) stages() []admissionv1.Stage {
	if c.stage == stageWord(admissionv1.Stage_STAGE_ADMIT) {
		return []admissionv1.Stage{admissionv1.Stage_STAGE_ADMIT}
	}
	all := []admissionv1.Stage{admissionv1.Stage_STAGE_MUTATE, admissionv1.Stage_STAGE_VALIDATE}
	return slices.DeleteFunc(all, func(s admissionv1.Stage) bool { return c.stage != "" && c.stage != stageWord(s) })
}

func (c *command) ask(
	ctx context.Context, j judge, request *admissionv1.AdmissionRequest, stage admissionv1.Stage, explain bool,
) (*admissionv1.ReviewResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return j(ctx, &admissionv1.ReviewRequest{
		Stage: stage, Request: request, Explain: true, AwaitShadows: explain || len(c.configs) > 0, Expressions: explain,
	})
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
