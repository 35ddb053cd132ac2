package review

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// judge answers one stage of a review. A refusedError means that there is no verdict about this review; after any other error there is none about others.
type judge func(context.Context, *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error)

// refusedError is the word of a mesh that it does not judge a review, with advice.
type refusedError struct{ message string }

// Error implements error.
func (e refusedError) Error() string { return e.message }

// load reads the configuration of files. Without any there is a mesh without policies, which makes requests.
func (c *command) load(cmd *cobra.Command) error {
	var objects []config.Object
	if len(c.configs) > 0 {
		loaded, problems, err := offline.Load(cmd.Context(), c.configs...)
		if err != nil {
			return fmt.Errorf("--config: %w", err)
		}
		if err := problems.Err(); err != nil {
			return fmt.Errorf("--config: %w", err)
		}
		if objects = loaded; c.enforce {
			objects = offline.Enforced(objects)
		}
	}
	mesh, problems := offline.New(objects)
	if err := problems.Err(); err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	if len(c.configs) > 0 && len(mesh.Hooks()) == 0 {
		return fmt.Errorf("--config %s: there is no policy in it", strings.Join(c.configs, " --config "))
	}
	for _, o := range mesh.Unjudged() {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s %q is left out: it needs a mesh\n", o.Origin(), o.WrittenKind(), o.Name)
	}
	c.by.mesh = mesh
	return nil
}

// judge returns the judge of documents, and a function that ends it.
func (c *command) judge(ctx context.Context, in *input) (judge, func(), error) {
	if len(c.configs) > 0 {
		return c.offline(ctx, in)
	}
	conn, err := c.mesh.Dial(connect.MaxAnswerBytes)
	if err != nil {
		return nil, nil, err
	}
	client := admissionv1.NewAdmissionServiceClient(conn)
	return func(ctx context.Context, r *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
		answer, err := client.Review(ctx, r)
		if err != nil {
			return nil, c.advise(err)
		}
		return answer, nil
	}, func() { _ = conn.Close() }, nil
}

// offline is the judge by configuration files. The cluster has the Namespaces among the documents.
func (c *command) offline(ctx context.Context, in *input) (judge, func(), error) {
	labelled, err := labels.ConvertSelectorToLabelsMap(c.namespaceLabels)
	if err != nil {
		return nil, nil, fmt.Errorf("--namespace-labels %s: write labels as env=prod,tier=a: %w", c.namespaceLabels, err)
	}
	facts := &offline.Facts{Namespaces: map[string]map[string]string{}}
	for i := range in.documents {
		o := &unstructured.Unstructured{}
		d := &in.documents[i]
		facts.Namespaces[d.request.GetNamespace()] = labelled
		if d.err == nil && d.request.GetKind().GetKind() == "Namespace" && o.UnmarshalJSON(d.request.GetObject().GetRaw()) == nil {
			facts.Objects = append(facts.Objects, o)
		}
	}
	by, err := c.by.mesh.With(facts)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, r *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
		answer, err := by.Review(ctx, r)
		if err != nil && ctx.Err() == nil {
			return nil, refusedError{err.Error()}
		}
		return answer, err
	}, func() { by.Close(ctx) }, nil
}

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
