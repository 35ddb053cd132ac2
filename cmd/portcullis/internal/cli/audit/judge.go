package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/audit"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

// configuration is a configuration, and the way to judge by it.
type configuration struct {
	objects []config.Object
	hooks   []*match.Hook
	// judge makes the judge of objects of a cluster, and a function that ends it.
	judge func(*audit.Cluster) (audit.Judge, func(), error)
}

// modes are the modes of Policies in a cluster, by KIND/NAME.
func (c *configuration) modes(cluster string) map[string]string {
	modes := map[string]string{}
	for i := range c.objects {
		if o := &c.objects[i]; o.Short != nil {
			modes[o.Key.String()] = string(o.Short.Spec.ModeIn(cluster))
		}
	}
	return modes
}

// configuration reads the configuration of files, or of a mesh.
func (c *command) configuration(cmd *cobra.Command) (*configuration, error) {
	if len(c.configs) == 0 {
		return c.ofMesh(cmd.Context())
	}
	objects, problems, err := offline.Load(cmd.Context(), c.configs...)
	if err == nil {
		err = problems.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	if objects, err = c.selected(objects); err != nil {
		return nil, err
	}
	for i := range objects {
		if o := &objects[i]; o.Cluster != nil { // the audit is about all objects, also those that a bypass lets pass
			open := *o.Cluster
			open.Spec.Bypass = nil
			o.Cluster = &open
		}
	}
	judged := objects
	if c.enforce {
		judged = offline.Enforced(objects)
	}
	mesh, problems := offline.New(judged)
	if err := problems.Err(); err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	if len(mesh.Hooks()) == 0 {
		return nil, fmt.Errorf("--config %s: there is no policy in it", strings.Join(c.configs, " --config "))
	}
	for _, o := range mesh.Unjudged() {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s %q is left out: it needs a mesh\n", o.Origin(), o.WrittenKind(), o.Name)
	}
	return &configuration{objects, mesh.Hooks(), func(cluster *audit.Cluster) (audit.Judge, func(), error) {
		judges, err := mesh.With(&offline.Facts{Cluster: cluster.Facts(c.user != "")})
		if err != nil {
			return nil, nil, err
		}
		return audit.Offline{Judges: judges}, func() { judges.Close(context.WithoutCancel(cmd.Context())) }, nil
	}}, nil
}

// selected are the objects of files without the policies that --policy leaves out.
func (c *command) selected(objects []config.Object) ([]config.Object, error) {
	if len(c.policies) == 0 {
		return objects, nil
	}
	var names []string
	for i := range objects {
		if objects[i].IsPolicy() {
			names = append(names, objects[i].Name)
		}
	}
	if err := c.among(names); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(objects), func(o config.Object) bool {
		name := o.PolicyOf().Name
		if o.IsPolicy() {
			name = o.Name
		}
		return name != "" && !slices.Contains(c.policies, name)
	}), nil
}

// among returns an error about a name of --policy that is not among these.
func (c *command) among(names []string) error {
	for _, name := range c.policies {
		if !slices.Contains(names, name) {
			return fmt.Errorf("--policy %s: there is none of this name%s", name, suggest.DidYouMean(name, names))
		}
	}
	return nil
}

// identity is a text that is another for an audit by other policies, of another cluster, or with other flags.
func (c *command) identity(by *configuration, host string) (string, error) {
	of := []any{
		host, c.cluster, c.enforce, c.options.User, c.options.Groups, c.options.Resources, c.options.Namespaces, c.options.Findings, c.policies, c.mesh.Server,
	}
	for i := range by.objects {
		of = append(of, by.objects[i].Key.String(), by.objects[i].Digest)
	}
	text, err := json.Marshal(of)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// ofMesh reads the configuration of a running mesh, which judges.
func (c *command) ofMesh(ctx context.Context) (*configuration, error) {
	by := &configuration{}
	err := c.mesh.Config(ctx, c.timeout, func(ctx context.Context, client configv1.ConfigServiceClient) error {
		listed, err := client.List(ctx, &configv1.ListRequest{})
		if err != nil {
			return err
		}
		for _, o := range listed.GetObjects() {
			objects, _ := configcli.NewDecoder().Decode("", o.GetManifest().GetRaw()) // the mesh has found them valid
			by.objects = append(by.objects, objects...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	snapshot, _ := config.Compile("mesh", by.objects)
	var names []string
	for _, h := range snapshot.Hooks() {
		if !h.Initializes() { // they do not act in a dry run
			by.hooks, names = append(by.hooks, h), append(names, h.ID.Name)
		}
	}
	if err := c.among(names); err != nil {
		return nil, err
	}
	by.hooks = slices.DeleteFunc(by.hooks, func(h *match.Hook) bool { return len(c.policies) > 0 && !slices.Contains(c.policies, h.ID.Name) })
	if len(by.hooks) == 0 {
		return nil, errors.New("the mesh has no hook and no policy")
	}
	c.options.DryRun, c.options.Workers = true, meshWorkers
	by.judge = func(*audit.Cluster) (audit.Judge, func(), error) {
		conn, err := c.mesh.Dial(connect.MaxAnswerBytes)
		if err != nil {
			return nil, nil, err
		}
		return &running{c, admissionv1.NewAdmissionServiceClient(conn), rate.NewLimiter(rate.Limit(c.meshPerSecond), 1)}, func() { _ = conn.Close() }, nil
	}
	return by, nil
}

// meshWorkers is how many reviews a mesh judges at a time.
const meshWorkers = 8

// running is a mesh that judges.
type running struct {
	command *command
	client  admissionv1.AdmissionServiceClient
	limit   *rate.Limiter
}

var _ audit.Judge = (*running)(nil)

// Judge implements [audit.Judge].
func (r *running) Judge(ctx context.Context, request *admissionv1.AdmissionRequest) ([]audit.Verdict, error) {
	answer, err := r.ask(ctx, request, admissionv1.Stage_STAGE_ADMIT)
	if err != nil {
		return nil, err
	}
	verdicts := audit.VerdictsOf(answer.GetOutcomes())
	if answer.GetOutcome() == "failed" { // a mutating hook has ended the review before the others were asked
		if answer, err = r.ask(ctx, request, admissionv1.Stage_STAGE_VALIDATE); err != nil {
			return nil, err
		}
		verdicts = audit.Merged(verdicts, audit.VerdictsOf(answer.GetOutcomes()))
	}
	if len(verdicts) == 0 && !answer.GetResponse().GetAllowed() {
		return nil, errors.New(answer.GetResponse().GetStatus().GetMessage())
	}
	return slices.DeleteFunc(verdicts, func(v audit.Verdict) bool { return !r.command.wants(v.Policy) }), nil
}

// wants reports whether --policy selects a policy or hook.
func (c *command) wants(policy string) bool {
	_, name, isPolicy := strings.Cut(policy, "/")
	if !isPolicy {
		name = policy
	}
	return len(c.policies) == 0 || slices.Contains(c.policies, name)
}

// ask asks for one stage. An error that is not about the review alone ends the audit.
func (r *running) ask(ctx context.Context, request *admissionv1.AdmissionRequest, stage admissionv1.Stage) (*admissionv1.ReviewResponse, error) {
	if err := r.limit.Wait(ctx); err != nil {
		return nil, &audit.StopError{Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, r.command.timeout)
	defer cancel()
	answer, err := r.client.Review(ctx, &admissionv1.ReviewRequest{Stage: stage, Request: request, Explain: true, AwaitShadows: true})
	if err == nil {
		return answer, nil
	}
	s := status.Convert(err)
	if said, ofReview := strings.CutPrefix(s.Message(), "portcullis: "); ofReview {
		return nil, errors.New(said)
	}
	switch refused := r.command.mesh.Refusal(err); {
	case refused != nil:
		return nil, &audit.StopError{Err: refused}
	case s.Code() == codes.DeadlineExceeded:
		return nil, fmt.Errorf("the mesh has not answered within %s", r.command.timeout)
	}
	return nil, &audit.StopError{Err: fmt.Errorf("the mesh at %s: %s", r.command.mesh.Server, s.Message())}
}
