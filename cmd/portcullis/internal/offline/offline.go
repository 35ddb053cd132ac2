// Package offline judges reviews in this process by the policies of configuration files: with the decoder, the compiler and the dispatcher of a mesh,
// and without listeners, stores, hosts and clusters. A caller gives the [Facts] that a mesh asks a cluster.
package offline

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/kubekinds"
	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/cluster"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// Mesh is one configuration, by which a [Judge] judges reviews. Its methods may be called concurrently.
type Mesh struct {
	// Streams carries the calls of hooks of hosts ([NewWithHooks]), and Stager stages objects for their initializers; nil fails them. Both are set before
	// the first judge.
	Streams review.Backend
	Stager  dispatcher.Stager

	snapshot *match.Snapshot
	codec    *builtin.Codec
	clusters *cluster.Registry
	declared map[string]*kinds.Cluster
	unjudged []config.Object
}

// undeclared is the cluster of reviews whose cluster has no document. No document has the name.
const undeclared = ""

// New compiles a configuration. It leaves out the objects that need a host, a webhook or a running mesh ([Mesh.Unjudged]). The problems are about how the
// objects fit together, as [config.Compile] has them.
func New(objects []config.Object) (*Mesh, config.Problems) {
	return compile(objects, func(*config.Object) *config.Object { return nil })
}

// NewWithHooks is New with the hooks and initializers that hosts serve over streams, and their HookRoutes. Hosts of any authority may serve them, and a
// hook in shadow decides as others do. Initializers of controllers are left out: a controller has no mesh to watch.
func NewWithHooks(objects []config.Object) (*Mesh, config.Problems) {
	routed := map[string]bool{}
	for i := range objects {
		if r := objects[i].Route; servedByHosts(r) && r.Spec.Stage != kinds.StageInitialize {
			routed[r.Spec.Configuration] = true
		}
	}
	called := func(o *config.Object) *config.Object {
		switch {
		case servedByHosts(o.Route):
			served, route := *o, *o.Route
			route.Spec.Authorities, route.Spec.Shadow = nil, false
			served.Route = &route
			return &served
		case o.Initializes(), o.Route != nil && o.Route.Spec.Stage == kinds.StageInitialize, o.Route == nil && routed[o.Name]:
			return o
		}
		return nil
	}
	m, problems := compile(objects, called)
	ofController := func(h *match.Hook) bool { return h.Initializes() && !h.Route.Stream }
	if !slices.ContainsFunc(m.Hooks(), ofController) {
		return m, problems
	}
	objects = slices.Clone(objects)
	for i := range objects {
		if o := &objects[i]; o.Initializes() {
			o.Mutating = o.Mutating.DeepCopy()
			o.Mutating.Webhooks = slices.DeleteFunc(o.Mutating.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool {
				return slices.ContainsFunc(m.Hooks(), func(h *match.Hook) bool {
					return ofController(h) && h.ID.Configuration == o.Name && h.ID.Name == w.Name
				})
			})
		}
	}
	return compile(objects, called)
}

// servedByHosts reports whether a HookRoute names hosts that serve hooks over streams.
func servedByHosts(r *kinds.HookRoute) bool { return r != nil && r.Spec.Stream != nil }

// compile compiles a configuration. called returns the object to judge by for a webhook configuration or a HookRoute, or nil.
func compile(objects []config.Object, called func(*config.Object) *config.Object) (*Mesh, config.Problems) {
	m := &Mesh{codec: builtin.New(builtin.Options{}), declared: map[string]*kinds.Cluster{}}
	var judged []config.Object
	for i := range objects {
		o := &objects[i]
		if o.Validating != nil || o.Mutating != nil || o.Route != nil {
			if o = called(o); o == nil {
				m.unjudged = append(m.unjudged, objects[i])
				continue
			}
		}
		judged = append(judged, *o)
	}
	var problems config.Problems
	m.snapshot, problems = config.Compile("files", judged)
	m.clusters = cluster.New(cluster.Options{Builtin: kubekinds.Kinds{Codec: m.codec}})
	documents := []*kinds.Cluster{{Metadata: kinds.Metadata{Name: undeclared}}}
	for i := range judged {
		if c := judged[i].Cluster; c != nil {
			alone := withoutConnection(c)
			m.declared[c.Metadata.Name] = alone
			documents = append(documents, alone)
		}
	}
	m.clusters.Update(documents)
	return m, problems
}

// withoutConnection is the document of a cluster that is not asked.
func withoutConnection(c *kinds.Cluster) *kinds.Cluster {
	return &kinds.Cluster{Metadata: c.Metadata, Spec: kinds.ClusterSpec{
		APIVersions: c.Spec.APIVersions, CustomResourceDefinitions: c.Spec.CustomResourceDefinitions, Bypass: c.Spec.Bypass,
	}}
}

// Unjudged are the objects of the configuration that no review is judged by: webhook configurations, initializers and HookRoutes.
func (m *Mesh) Unjudged() []config.Object { return m.unjudged }

// Hooks are the policies and hooks in force, in the order in which they are asked. The caller must not write to the slice.
func (m *Mesh) Hooks() []*match.Hook { return m.snapshot.Hooks() }

// Backwards is the mesh with its mutating policies in the opposite order.
func (m *Mesh) Backwards() *Mesh {
	other := *m
	other.snapshot = m.snapshot.Backwards()
	return &other
}

// Snapshot is the compiled configuration.
func (m *Mesh) Snapshot() *match.Snapshot { return m.snapshot }

// Judge judges the reviews of clusters with the same facts. It has the dispatcher of a mesh, with all that it remembers from one review to the next.
type Judge struct{ dispatcher *dispatcher.Dispatcher }

// evaluationTime lets reviews evaluate policies and matchConditions at the same time, however long: no other tenant waits for a processor.
const evaluationTime = time.Minute

// With returns a judge. The facts belong to it; nil are the zero Facts.
func (m *Mesh) With(f *Facts) (*Judge, error) {
	f = cmp.Or(f, &Facts{})
	streams := m.Streams
	if streams == nil {
		streams = noStreams{}
	}
	d, err := dispatcher.New(dispatcher.Options{
		Snapshots: snapshots{m.snapshot}, Clusters: clusters{m, f}, Streams: streams, Stager: m.Stager,
		Codec:          func(a conversion.Allowance) chain.Codec { return m.codec.NewPatchSession(a) },
		EvaluationTime: evaluationTime,
	})
	if err != nil {
		return nil, fmt.Errorf("the mesh in memory: %w", err)
	}
	return &Judge{d}, nil
}

// Judge judges a review of any stage. Its cluster is the name of a cluster, which needs no document. The error means that there is no verdict. It may be
// called concurrently.
func (j *Judge) Judge(ctx context.Context, r *review.Request) (review.Answer, error) {
	return j.dispatcher.Review(ctx, r) //nolint:wrapcheck // it has all words
}

// Review is Judge in the form of the service of a running mesh.
func (j *Judge) Review(ctx context.Context, r *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
	answer, err := j.Judge(ctx, &review.Request{
		Stage: r.GetStage(), Entry: match.ParseEntry(r.GetEntry()), Admission: r.GetRequest(),
		Explain: r.GetExplain(), AwaitShadows: r.GetAwaitShadows(), Expressions: r.GetExpressions(),
	})
	if err != nil {
		return nil, err
	}
	return &admissionv1.ReviewResponse{
		Response: answer.Response, Revision: answer.Revision, Outcomes: answer.Outcomes, ApiVersion: r.GetApiVersion(), Failed: answer.Failed,
		Outcome: string(answer.Outcome()),
	}, nil
}

// Close waits for shadow calls.
func (j *Judge) Close(ctx context.Context) { j.dispatcher.Close(ctx) }

// Default returns an object with the defaults that its API server fills in before admission: by its built-in kind, or by the CustomResourceDefinition in the
// document of the cluster. An object of another kind is returned as it is.
func (m *Mesh) Default(ctx context.Context, name string, object []byte) ([]byte, error) {
	defaulted, err := m.codec.Default(object)
	if field, message, ok := config.WrongType(object, err); ok {
		return nil, fmt.Errorf("%s: %s", field, message)
	}
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the kind
	}
	object = defaulted
	kind, err := conversion.KindOf(object)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the field
	}
	return m.cluster(name).Default(ctx, kind, object, nil) //nolint:wrapcheck // it names the kind
}

// Mistake is a warning about an object that an API server takes otherwise than its author means, probably. Its JSON form is stable: fields may be added.
type Mistake struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Mistakes are a kind that Kubernetes does not have although its group does, fields that it does not have, and a document of our own configuration.
func (m *Mesh) Mistakes(r *admissionv1.AdmissionRequest) (all []Mistake) {
	kind := schema.GroupVersionKind{Group: r.GetKind().GetGroup(), Version: r.GetKind().GetVersion(), Kind: r.GetKind().GetKind()}
	if message := (kubekinds.Kinds{Codec: m.codec}).Mistaken(kind); message != "" {
		all = append(all, Mistake{"kind", message})
	}
	if kind.Group == kinds.Group {
		all = append(all, Mistake{"kind", fmt.Sprintf("%s is configuration of Portcullis, which --config judges by: it is judged as an object here", kind.Kind)})
	}
	for _, field := range m.codec.UnknownFields(r.GetObject().GetRaw()) {
		all = append(all, Mistake{field, fmt.Sprintf("Kubernetes 1.36 has no field %s in %s: it drops or refuses it", field, kind.Kind)})
	}
	return all
}

// cluster has the facts that stand in the document of a cluster.
func (m *Mesh) cluster(name string) match.Cluster {
	if m.declared[name] == nil {
		name = undeclared
	}
	return m.clusters.Cluster(name)
}

// snapshots provides one configuration.
type snapshots struct{ snapshot *match.Snapshot }

var _ dispatcher.Snapshots = snapshots{}

// Acquire implements [dispatcher.Snapshots].
func (s snapshots) Acquire(context.Context, string, int64) (*match.Snapshot, string, error) {
	return s.snapshot, "", nil
}

// Release implements [dispatcher.Snapshots].
func (snapshots) Release(*match.Snapshot) {}

// noStreams stands for the hosts, of which there are none.
type noStreams struct{}

var _ review.Backend = noStreams{}

// Start implements [review.Backend].
func (noStreams) Start(_ context.Context, set *review.CallSet, done func(int, review.Result)) func(int) {
	for i := range set.Calls {
		done(i, review.Fail(review.FailureUnavailable, "there is no host in this process"))
	}
	return func(int) {}
}

// Enforced are objects with each Policy in mode enforce.
func Enforced(objects []config.Object) []config.Object {
	objects = slices.Clone(objects)
	for i := range objects {
		objects[i] = objects[i].Enforced()
	}
	return objects
}
