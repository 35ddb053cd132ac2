package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/analysis"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/gateway"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

var errBadWindow = errors.New("since: use more than nothing and at most 1h, which is how long dispatchers keep records")

// reader asks the mesh. It may be used concurrently.
type reader struct {
	mesh    mesh.Mesh // notes nothing
	timeout time.Duration
}

// state has everything that the page shows, without single reviews.
type state struct {
	Now         time.Time         `json:"now"`
	Window      float64           `json:"windowSeconds"`
	Notes       []string          `json:"notes"` // about dispatchers that do not answer
	Hooks       []json.RawMessage `json:"hooks"` // each as each dispatcher has it
	Hosts       []json.RawMessage `json:"hosts"`
	Dispatchers json.RawMessage   `json:"dispatchers"`
	Clusters    []cluster         `json:"clusters"`
	Report      *analysis.Report  `json:"report"`
	Timelines   []*timeline       `json:"timelines"`
	Shadows     []analysis.Shadow `json:"shadows"` // in whole hours, without users and cases
	Staged      []json.RawMessage `json:"staged"`  // objects that are held for initializers, without their content
}

// cluster is a Cluster without the fields that the page hides, such as its credentials.
type cluster struct {
	Name       string            `json:"name"`
	Bypass     *kinds.Bypass     `json:"bypass,omitempty"`
	Conditions []json.RawMessage `json:"conditions"`
}

// part has the answers of one dispatcher.
type part struct {
	hooks     *configv1.ListHooksResponse
	hosts     *configv1.ListHostsResponse
	latencies *analysisv1.ListLatenciesResponse
	shadows   *analysisv1.ListShadowsResponse // nil from a dispatcher that has no such records
}

// GetDispatcherId implements the answers of mesh.Everywhere.
func (p part) GetDispatcherId() string { return p.hooks.GetDispatcherId() } //nolint:staticcheck // as protobuf names it

func (r *reader) state(ctx context.Context, window time.Duration) (*state, error) {
	var notes bytes.Buffer
	all := r.mesh
	all.Notes = &notes
	since := timestamppb.New(time.Now().Add(-window))
	parts, err := mesh.Everywhere(ctx, all, func(ctx context.Context, c mesh.Clients) (p part, err error) {
		if p.hooks, err = c.Config.ListHooks(ctx, &configv1.ListHooksRequest{}); err != nil {
			return p, err
		}
		if p.hosts, err = mesh.ListHosts(ctx, c.Config, ""); err != nil {
			return p, err
		}
		if p.latencies, err = c.Analysis.ListLatencies(ctx, &analysisv1.ListLatenciesRequest{Since: since}); err != nil {
			return p, err
		}
		if p.shadows, err = c.Analysis.ListShadows(ctx, &analysisv1.ListShadowsRequest{Since: since}); status.Code(err) == codes.Unimplemented {
			err = nil // it is older than these records
		}
		return p, err
	})
	if err != nil {
		return nil, err
	}
	out := &state{Now: time.Now().UTC(), Window: window.Seconds(), Notes: lines(&notes)}
	var latencies []*analysisv1.Latency
	var shadows []*analysisv1.ListShadowsResponse
	for _, p := range parts {
		if out.Hooks, err = appendJSON(out.Hooks, p.hooks.GetHooks()); err != nil {
			return nil, err
		}
		if out.Hosts, err = appendJSON(out.Hosts, p.hosts.GetHosts()); err != nil {
			return nil, err
		}
		latencies, shadows = append(latencies, p.latencies.GetLatencies()...), append(shadows, p.shadows)
	}
	out.Shadows = analysis.Shadows(shadows)
	for i := range out.Shadows {
		out.Shadows[i].Subjects, out.Shadows[i].Cases = nil, nil // the page of the hook asks for them
	}
	out.Report, out.Timelines = analysis.Reported(latencies), timelines(latencies)
	if err := r.addConfiguration(ctx, out); err != nil {
		return nil, err
	}
	return out, r.addStaged(ctx, out)
}

// addStaged adds the objects that are held for initializers: one dispatcher knows the objects of all. The rest of the page needs no
// store.
func (r *reader) addStaged(ctx context.Context, out *state) error {
	found, err := r.mesh.Initializers.List(ctx, &initializerv1.ListRequest{})
	switch status.Code(err) {
	case codes.OK:
	case codes.Unimplemented, codes.FailedPrecondition: // it is older than initializers, or has no store
		return nil
	default:
		out.Notes = append(out.Notes, "The objects held for initializers are not known: "+status.Convert(err).Message())
		return nil
	}
	for _, o := range found.GetObjects() {
		o.Object = nil
	}
	out.Staged, err = appendJSON(nil, found.GetObjects())
	return err
}

// addConfiguration adds the other dispatchers and the clusters, as one dispatcher knows them.
func (r *reader) addConfiguration(ctx context.Context, out *state) error {
	dispatchers, err := r.mesh.Config.ListDispatchers(ctx, &configv1.ListDispatchersRequest{})
	if err != nil {
		return err
	}
	if out.Dispatchers, err = gateway.Marshal(dispatchers); err != nil {
		return err
	}
	found, err := r.mesh.Config.List(ctx, &configv1.ListRequest{Kind: "Cluster"})
	if err != nil {
		return err
	}
	for _, o := range found.GetObjects() {
		c := cluster{Name: o.GetKey().GetName()}
		if c.Conditions, err = appendJSON(nil, o.GetConditions()); err != nil {
			return err
		}
		var manifest kinds.Cluster
		if err := json.Unmarshal(o.GetManifest().GetRaw(), &manifest); err != nil {
			out.Notes = append(out.Notes, fmt.Sprintf("Cluster/%s cannot be read, so its break-glass is not shown: %v", c.Name, err))
		}
		c.Bypass = manifest.Spec.Bypass
		out.Clusters = append(out.Clusters, c)
	}
	return nil
}

// reviews are the reviews of all dispatchers, the slowest first.
func (r *reader) reviews(ctx context.Context, request *analysisv1.ListReviewsRequest) (json.RawMessage, error) {
	answers, err := mesh.Everywhere(ctx, r.mesh, func(ctx context.Context, c mesh.Clients) (*analysisv1.ListReviewsResponse, error) {
		return c.Analysis.ListReviews(ctx, request)
	})
	if err != nil {
		return nil, err
	}
	return gateway.Marshal(&analysisv1.ListReviewsResponse{Reviews: analysis.Slowest(answers)})
}

// shadows returns the would-be decisions of the hooks of a name, as far back as they are recorded.
func (r *reader) shadows(ctx context.Context, hook string) ([]analysis.Shadow, error) {
	return mesh.Shadows(ctx, r.mesh, &analysisv1.ListShadowsRequest{Hook: hook})
}

func appendJSON[M proto.Message](to []json.RawMessage, messages []M) ([]json.RawMessage, error) {
	for _, m := range messages {
		data, err := gateway.Marshal(m)
		if err != nil {
			return nil, err
		}
		to = append(to, data)
	}
	return to, nil
}

// lines are the lines of a text.
func lines(text *bytes.Buffer) []string {
	return strings.FieldsFunc(text.String(), func(c rune) bool { return c == '\n' })
}
